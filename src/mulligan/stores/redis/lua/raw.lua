-- Jobs as they are stored, for the client to decode: {id, state, body, extra, history...}; an empty text where there is none.

-- The last error and the result, as extra_of tells them; of a job whose state cannot be read what there is of a key.
local function extra_text(id, state)
  local row = row_of(id, state)
  local first, second = extra_of(id, row and row.extra or 1)
  return (first or '') .. (second or '')
end

local function raw_of(id, state, with_history)
  local one = {id, state, call('GET', BODY .. id) or '', extra_text(id, state)}
  if with_history then
    for _, record in ipairs(call('LRANGE', HISTORY .. id, 0, -1)) do one[#one + 1] = record end
  end
  return one
end
