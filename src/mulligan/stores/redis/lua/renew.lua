-- ARGV[2]: flat, id and fence; ARGV[3]: the lease; ARGV[4], ARGV[5]: the worker's id and what it tells of itself, or empty.
-- Answers the places of grips that no longer hold, and of those whose job is to be cancelled.
local WORKER_MEMORY_US = 3600 * 1000000
local grips, lost, stopping, ids = decode(ARGV[2]), {}, {}, {}
for i = 1, #grips, 2 do ids[#ids + 1] = grips[i] end
load(ids)

-- Whether a job still has the slots it was claimed under: an ended lease gave them away, and must find them free again.
local function has_slots(row)
  if not row.slots or not row.lease or row.lease > now then return true end
  for most, lane, by_key in string.gmatch(row.slots, '(%-?%d+)|(%a*)|(%a*)') do
    if count_held(row.queue, lane ~= '' and lane, by_key ~= '' and row.concurrency or nil) >= tonumber(most) then return false end
  end
  return true
end

even_when_full()
for place, id in ipairs(ids) do
  local row = rows[id]
  if not row or row.status ~= 'processing' or row.fence ~= grips[2 * place] or not has_slots(row) then
    lost[#lost + 1] = place
  else
    row.lease = now + tonumber(ARGV[3])
    touch(row)
    -- The next grip counts slots, and must see this one.
    for _, key in ipairs(more_of(row) or {}) do call('ZADD', key, int(row.lease), id) end
    if row.cancel then stopping[#stopping + 1] = place end
  end
end
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
