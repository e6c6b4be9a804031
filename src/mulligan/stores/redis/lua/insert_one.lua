-- Storing one new job that needs nothing but its own keys: no unique key, no group. The same as new.lua does with it, and without the prelude:
-- to make the functions of the others takes longer than to store a job. KEYS and ARGV[1] as there; ARGV[2]: id, ARGV[3]: body, ARGV[4]: queue,
-- ARGV[5]: priority, ARGV[6]: both of them packed, ARGV[7]: delay, ARGV[8]: the channel of the hints, if one is to go out: here it costs
-- no round trip, and a sleeper hears of the job before its caller does. Answers 0, and has written nothing, if the id is known.
if redis.replicate_commands then redis.replicate_commands() end
local call, pack, id = redis.call, cmsgpack.pack, ARGV[2]
local prefix, now = string.sub(KEYS[1], 1, -6), tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local run_at, NOW = now + tonumber(ARGV[7]), pack(now)
local due = run_at == now and NOW or pack(run_at)
-- The values of rows.lua that are the same for all such jobs, packed.
local state = '\167pending\0\0' .. due .. NOW .. '\192\192\192\192\192\192\165fresh\1\165\0\0\0\0\1\192\192\0' .. due .. ARGV[6] .. NOW .. due
  .. '\192\194\192\192\192'
if call('MSETNX', prefix .. 'state:' .. id, state, prefix .. 'body:' .. id, ARGV[3]) == 0 then
  return {call('GET', KEYS[1]) or '', tonumber(call('GET', KEYS[2]) or '0'), now, 0}
end
call('SADD', prefix .. 'names', ARGV[4])
call('ZADD', prefix .. 'ids', '0', id)
call('ZADD', prefix .. 'due:' .. ARGV[4] .. ':fresh:' .. ARGV[5], run_at, id)
if ARGV[8] ~= '' then redis.pcall('PUBLISH', ARGV[8], '') end
return {call('GET', KEYS[1]) or '', call('INCR', KEYS[2]), now, 1}
