-- ARGV[2]: after this number; ARGV[3]: how many. Answers the first number wanted, and the entries from the one that holds it on, until they
-- hold enough: each the number of its last event, the time, and the events.
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local AT_ONCE = 20
local first = math.max(1, after + 1, tonumber(call('GET', SEQ) or '0') - EVENTS_MAX + 1)
local found, reached, from = {}, first - 1, int(first)
while reached - first + 1 < limit do
  local entries = call('XRANGE', EVENTS, from, '+', 'COUNT', AT_ONCE)
  for _, entry in ipairs(entries) do
    if reached - first + 1 < limit then
      reached = tonumber(string.match(entry[1], '^%d+'))
      found[#found + 1] = {reached, tonumber(entry[2][2]) or 0, entry[2][4] or ''}
      from = '(' .. entry[1]
    end
  end
  if #entries < AT_ONCE then break end
end
return answer(false, first, found)
