-- The lines of a claim: which waiting jobs each ask may take, in its order.
-- Jobs wait in due:<queue>:<lane>:<priority>, scored by run_at. A claim in the order of creation first marks due jobs: moves them, a
-- bounded number at a time, to ready:<queue>:<lane>:<priority>, scored by created_at. A claim in the order of run_at moves them back.
local READY_MAX = 5000
local moved = false -- whether anything was marked or unmarked: a write, if an invisible one

-- Moves ids from one index to the other, under the score the row tells; `field` is the row's own name for it.
local function shift(from, to, ids, field)
  local texts, values, gone = get_all(STATE, ids), {}, {}
  for i, id in ipairs(ids) do
    local row = texts[i] and row_of(id, texts[i])
    gone[i] = id
    if row and row.status == 'pending' then
      values[#values + 1] = int(row[field])
      values[#values + 1] = id
    elseif texts[i] and not row then
      damaged[id] = true
    end
  end
  in_portions('ZREM', from, gone)
  in_portions('ZADD', to, values)
  moved = true
end

local function mark(queue, lane, priority)
  local due = due_key(queue, lane, priority)
  local ids = call('ZRANGEBYSCORE', due, '-inf', int(now), 'LIMIT', 0, READY_MAX)
  if #ids > 0 then shift(due, ready_key(queue, lane, priority), ids, 'created') end
end

local function unmark(queue, lane, priority)
  local ready = ready_key(queue, lane, priority)
  local ids = call('ZRANGE', ready, 0, READY_MAX - 1)
  if #ids > 0 then shift(ready, due_key(queue, lane, priority), ids, 'run_at') end
end

-- The marked jobs that are due, oldest first. After a clock was set back some are not due any more: those go back.
local function marked_line(queue, lane, priority, limit)
  local line, early, from = {}, {}, 0
  local ready = ready_key(queue, lane, priority)
  while #line < limit do
    local ids = call('ZRANGE', ready, from, from + limit - 1)
    if #ids == 0 then break end
    local texts = get_all(STATE, ids)
    for i, id in ipairs(ids) do
      local row = texts[i] and row_of(id, texts[i])
      if row and row.status == 'pending' and row.run_at > now then
        early[#early + 1] = id
      elseif #line < limit then
        line[#line + 1] = {id = id, at = row and row.created or 0, key = ready}
      end
    end
    from = from + limit
  end
  if #early > 0 then shift(ready, due_key(queue, lane, priority), early, 'run_at') end
  return line
end

local function by_time(a, b)
  if a.at ~= b.at then return a.at < b.at end
  return is_before(a.id, b.id)
end

-- Due jobs in the order of run_at, the marked ones among them.
local function mixed_line(queue, lane, priority, limit)
  local line = {}
  local due, ready = due_key(queue, lane, priority), ready_key(queue, lane, priority)
  local found = call('ZRANGEBYSCORE', due, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #found, 2 do line[#line + 1] = {id = found[i], at = tonumber(found[i + 1]), key = due} end
  local ids = call('ZRANGE', ready, 0, -1)
  local texts = get_all(STATE, ids)
  for i, id in ipairs(ids) do
    local row = texts[i] and row_of(id, texts[i])
    if not row or row.status ~= 'pending' or row.run_at <= now then
      line[#line + 1] = {id = id, at = row and row.run_at or 0, key = ready}
    end
  end
  if #ids > 0 then table.sort(line, by_time) end
  return line
end

-- Two lines in one; both are in order already.
local function merged(left, right)
  local line, i, j = {}, 1, 1
  while left[i] or right[j] do
    if not right[j] or (left[i] and by_time(left[i], right[j])) then
      line[#line + 1], i = left[i], i + 1
    else
      line[#line + 1], j = right[j], j + 1
    end
  end
  return line
end

-- The first jobs of an ask that is not simply one index from its beginning.
local function line_of(ask, limit)
  local line = {}
  for _, lane in ipairs(ask.lane and {ask.lane} or LANES) do
    line = merged(line, (ask.fifo and marked_line or mixed_line)(ask.queue, lane, ask.priority, limit))
  end
  for i = limit + 1, #line do line[i] = nil end
  return line
end
