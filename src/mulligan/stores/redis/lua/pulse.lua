-- ARGV[2]: queues; ARGV[3]: how far to count. Answers flat for each how many jobs are due, up to so many, and since when the oldest is, or -1.
local most, grouped, figures = tonumber(ARGV[3]), {}, {}
for _, queue in ipairs(call('SMEMBERS', prefix .. 'grouped')) do grouped[queue] = true end

local function earliest(a, b) return (a < 0 or b < a) and b or a end

-- Marked jobs are scored by their creation (lines.lua), so their states are looked at; the first ones only, to bound the cost.
local function marked(key, depth, oldest)
  for _, text in ipairs(get_all(STATE, call('ZRANGE', key, 0, most - 1))) do
    local ok, _, status, _, _, run_at = pcall(cmsgpack.unpack_limit, text or '', 4)
    if ok and status == 'pending' and type(run_at) == 'number' and run_at <= now then
      depth, oldest = depth + 1, earliest(oldest, run_at)
    end
  end
  return depth, oldest
end

local function scored_by_time(key, depth, oldest)
  local found = call('ZRANGEBYSCORE', key, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, 1)
  if not found[1] then return depth, oldest end
  return depth + call('ZCOUNT', key, '-inf', int(now)), earliest(oldest, tonumber(found[2]))
end

for _, queue in ipairs(decode(ARGV[2])) do
  local depth, oldest = 0, -1
  for _, lane in ipairs(LANES) do
    for _, priority in ipairs(PRIORITIES) do
      depth, oldest = scored_by_time(due_key(queue, lane, priority), depth, oldest)
      depth, oldest = marked(ready_key(queue, lane, priority), depth, oldest)
      if grouped[queue] then depth, oldest = scored_by_time(waiting_key(queue, lane, priority), depth, oldest) end
    end
  end
  figures[#figures + 1] = math.min(most, depth)
  figures[#figures + 1] = oldest
end
return answer(false, figures)
