-- ARGV[2]: the name of a schedule; ARGV[3]: '1' to pause, '0' to resume, 'remove' to remove it. Answers 1, or 0 if there is none.
local SCHEDULES = prefix .. 'schedules'
local text = call('HGET', SCHEDULES, ARGV[2])
if not text then return answer(false, 0) end
if ARGV[3] == 'remove' then
  call('HDEL', SCHEDULES, ARGV[2])
else
  local next_tick, _, _, rest = decode(text)
  call('HSET', SCHEDULES, ARGV[2], pack(next_tick, ARGV[3] == '1', now, rest))
end
return answer(true, 1)
