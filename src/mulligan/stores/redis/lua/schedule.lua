-- ARGV[2]: name; ARGV[3]: the stored text this was made from, or empty; ARGV[4..7]: next tick, 1 if paused, when changed, and the rest as JSON.
-- Answers 1, or 0 if the stored text is another one by now.
local SCHEDULES = prefix .. 'schedules'
if (call('HGET', SCHEDULES, ARGV[2]) or '') ~= ARGV[3] then return answer(false, 0) end
call('HSET', SCHEDULES, ARGV[2], pack(tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6]), ARGV[7]))
return answer(true, 1)
