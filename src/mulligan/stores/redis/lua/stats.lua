-- Answers the queues that have jobs or a setting, each {name, paused, fresh ready, fresh later, retry ready, retry later, done, failed,
-- cancelled, fresh oldest or -1, retry oldest or -1, next due or -1}, and those with running jobs, each {name, processing, stuck, retries,
-- and of the job that runs longest: id, lane, since, counts, body}.
local queues, running, seen, names = {}, {}, {}, {}
local settings, grouped = {}, {}
for _, queue in ipairs(call('SMEMBERS', prefix .. 'grouped')) do grouped[queue] = true end
for _, queue in ipairs(call('SMEMBERS', prefix .. 'names')) do names[#names + 1], seen[queue] = queue, true end
for _, queue in ipairs(call('HKEYS', prefix .. 'queues')) do
  settings[queue] = true
  if not seen[queue] then names[#names + 1], seen[queue] = queue, true end
end

local function earliest(a, b) return (a < 0 or b < a) and b or a end

-- `at` is the place of the lane.
local function count_waiting(figures, key, at)
  local all = call('ZCARD', key)
  if all == 0 then return end
  local ready, column = call('ZCOUNT', key, '-inf', int(now)), 1 + 2 * at
  figures[column], figures[column + 1] = figures[column] + ready, figures[column + 1] + all - ready
  if ready > 0 then figures[9 + at] = earliest(figures[9 + at], tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])) end
  if all > ready then
    figures[12] = earliest(figures[12], tonumber(call('ZRANGEBYSCORE', key, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]))
  end
end

local function count_marked(figures, key, at)
  local ids = call('ZRANGE', key, 0, -1)
  local texts = get_all(STATE, ids)
  for i, id in ipairs(ids) do
    local row = texts[i] and row_of(id, texts[i])
    if row and row.status == 'pending' then
      local is_ready = row.run_at <= now
      local column, time = 1 + 2 * at + (is_ready and 0 or 1), is_ready and 9 + at or 12
      figures[column], figures[time] = figures[column] + 1, earliest(figures[time], row.run_at)
    end
  end
end

for _, queue in ipairs(names) do
  local paused = call('SISMEMBER', prefix .. 'paused', queue)
  local rest = call('HMGET', COUNTS, 'done:' .. queue, 'failed:' .. queue, 'cancelled:' .. queue)
  local figures = {queue, paused, 0, 0, 0, 0, tonumber(rest[1] or '0'), tonumber(rest[2] or '0'), tonumber(rest[3] or '0'), -1, -1, -1}
  for at, lane in ipairs(LANES) do
    for _, priority in ipairs(PRIORITIES) do
      count_waiting(figures, due_key(queue, lane, priority), at)
      if grouped[queue] then count_waiting(figures, waiting_key(queue, lane, priority), at) end
      count_marked(figures, ready_key(queue, lane, priority), at)
    end
  end
  local sum = 0
  for column = 3, 9 do sum = sum + figures[column] end
  if sum > 0 or settings[queue] then queues[#queues + 1] = figures end
end

local longest = {}
local ids = call('ZRANGE', LEASES, 0, -1)
local texts = get_all(STATE, ids)
for i, id in ipairs(ids) do
  local row = texts[i] and row_of(id, texts[i])
  if row and row.status == 'processing' then
    local one = longest[row.queue]
    if not one then
      one = {row.queue, 0, 0, 0}
      longest[row.queue] = one
      running[#running + 1] = one
    end
    one[2] = one[2] + 1
    if (row.lease or now) <= now then one[3] = one[3] + 1 end
    if row.lane == 'retry' then one[4] = one[4] + 1 end
    if not one.row or row.updated < one.row.updated or (row.updated == one.row.updated and is_before(id, one.row.id)) then one.row = row end
  end
end
for _, one in ipairs(running) do
  local row = one.row
  one[5], one[6], one[7], one[8], one[9] = row.id, row.lane, row.updated, row.counts, call('GET', BODY .. row.id) or ''
end
return answer(false, queues, running)
