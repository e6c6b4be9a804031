-- Jobs as they are stored, for the client to decode: {id, state, body, extra, history...}; an empty text where there is none.
local function raw_of(id, state, with_history)
  local one = {id, state, call('GET', BODY .. id) or '', call('GET', EXTRA .. id) or ''}
  if with_history then
    for _, record in ipairs(call('LRANGE', HISTORY .. id, 0, -1)) do one[#one + 1] = record end
  end
  return one
end
