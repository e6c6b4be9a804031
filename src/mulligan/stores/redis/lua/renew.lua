-- ARGV[2]: flat, id and fence; ARGV[3]: the lease; ARGV[4], ARGV[5]: the worker's id and what it tells of itself, or empty.
-- Answers the places of grips that no longer hold, and of those whose job is to be cancelled.
local WORKER_MEMORY_US = 3600 * 1000000
local grips, lost, stopping, ids = decode(ARGV[2]), {}, {}, {}
for i = 1, #grips, 2 do ids[#ids + 1] = grips[i] end
load(ids)
for place, id in ipairs(ids) do
  local row = rows[id]
  if not row or row.status ~= 'processing' or row.fence ~= grips[2 * place] then
    lost[#lost + 1] = place
  else
    row.lease = now + tonumber(ARGV[3])
    touch(row)
    if row.cancel then stopping[#stopping + 1] = place end
  end
end
even_when_full()
local wrote = flush()
if ARGV[4] ~= '' then
  local WORKERS, SEEN = prefix .. 'workers', prefix .. 'seen'
  call('HSET', WORKERS, ARGV[4], ARGV[5])
  call('ZADD', SEEN, int(now), ARGV[4])
  local silent = call('ZRANGEBYSCORE', SEEN, '-inf', '(' .. int(now - WORKER_MEMORY_US), 'LIMIT', 0, PORTION)
  if #silent > 0 then
    call('HDEL', WORKERS, unpack(silent))
    call('ZREM', SEEN, unpack(silent))
  end
  wrote = true
end
return answer(wrote, lost, stopping)
