-- ARGV[2]: ids. Answers the jobs there are, with their histories.
local ids, found = decode(ARGV[2]), {}
local texts = get_all(STATE, ids)
for i, id in ipairs(ids) do
  local state = texts[i] or (call('EXISTS', BODY .. id) == 1 and '')
  if state then found[#found + 1] = raw_of(id, state, true) end
end
return answer(false, found)
