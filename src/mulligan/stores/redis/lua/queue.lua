-- ARGV[2]: queue, ARGV[3]: 1 if it is to be paused, ARGV[4]: its settings as JSON, ARGV[5]: the packed event if that changes anything.
local queue, paused = ARGV[2], ARGV[3] == '1'
local was_paused = call('SISMEMBER', prefix .. 'paused', queue) == 1
call('HSET', prefix .. 'queues', queue, pack(now, ARGV[4]))
call(paused and 'SADD' or 'SREM', prefix .. 'paused', queue)
if paused ~= was_paused then log(ARGV[5]) end
write_log()
return answer(true, paused ~= was_paused and 1 or 0)
