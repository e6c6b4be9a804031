-- ARGV[2]: ticks, each {name, expected, next tick, {kinds, jobs} (new.lua) or false}. Answers 1 for each that fired.
local SCHEDULES = prefix .. 'schedules'
local answers, fired = {}, false
for i, tick in ipairs(decode(ARGV[2])) do
  local text = call('HGET', SCHEDULES, tick[1])
  answers[i] = 0
  if text then
    local next_tick, paused, updated, rest = decode(text)
    if not paused and next_tick == tick[2] then
      call('HSET', SCHEDULES, tick[1], pack(tick[3], paused, updated, rest))
      if tick[4] then insert_all(unpack(tick[4])) end
      answers[i], fired = 1, true
    end
  end
end
return answer(fired, answers)
