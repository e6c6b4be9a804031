-- ARGV[2]: after this number; ARGV[3]: how many. Answers the number of the first event of the answer, and the events.
local after, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local last, kept = tonumber(call('GET', SEQ) or '0'), call('LLEN', EVENTS)
local first = math.max(after + 1, last - kept + 1)
if limit <= 0 or first > last then return answer(false, first, {}) end
local from = first - (last - kept + 1)
return answer(false, first, call('LRANGE', EVENTS, from, from + limit - 1))
