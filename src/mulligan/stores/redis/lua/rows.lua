-- Rows: the state of a job as a table. Loaded together, changed in memory, written together by flush().
-- A state is a stream of 22 values: ten that a claim writes, six that a settlement writes besides, six that hardly ever change. claim.lua
-- and finish.lua are hot: they copy the part they do not change as it is, without a table.
local STATUSES = {pending = true, processing = true, done = true, failed = true, cancelled = true}
local rows, places, damaged, dirty = {}, {}, {}, {}

local function row_of(id, text)
  local ok, status, fence, attempts, run_at, updated, finished, claim_id, claim_place, owner, lease, lane, generation, counts, settle_id,
    last_delay, extra, queue, priority, created, due_first, unique, cancel = pcall(decode, text)
  if not ok or not STATUSES[status] or type(fence) ~= 'number' or type(queue) ~= 'string' or type(priority) ~= 'number'
    or type(lane) ~= 'string' or type(generation) ~= 'number' or type(created) ~= 'number' or type(counts) ~= 'string'
    or (status == 'pending' and type(run_at) ~= 'number') then
    return nil
  end
  return {id = id, status = status, fence = fence, queue = queue, priority = priority, lane = lane, attempts = attempts,
    generation = generation, run_at = run_at, created = created, updated = updated, finished = finished, due_first = due_first,
    counts = counts, claim_id = claim_id, claim_place = claim_place, settle_id = settle_id, owner = owner, lease = lease,
    last_delay = last_delay, cancel = cancel, unique = unique, extra = extra}
end

local function state_of(row)
  return pack(row.status, row.fence, row.attempts, row.run_at, row.updated, row.finished, row.claim_id, row.claim_place, row.owner,
    row.lease, row.lane, row.generation, row.counts, row.settle_id, row.last_delay, row.extra, row.queue, row.priority, row.created,
    row.due_first, row.unique, row.cancel)
end

-- The index a row stands in, and its score there.
local function place_of(row)
  if row.status == 'pending' then return due_key(row.queue, row.lane, row.priority), row.run_at end
  if row.status == 'processing' then return LEASES, row.lease or now end
  return finished_key(row.status), row.finished or now
end

local function load(ids)
  local wanted = {}
  for _, id in ipairs(ids) do
    if places[id] == nil then
      places[id] = false
      wanted[#wanted + 1] = id
    end
  end
  local texts = get_all(STATE, wanted)
  for i, id in ipairs(wanted) do
    local row = texts[i] and row_of(id, texts[i])
    if row then
      rows[id] = row
      local key, score = place_of(row)
      places[id] = {key = key, score = score, status = row.status, queue = row.queue, lane = row.lane, priority = row.priority}
    elseif texts[i] then
      damaged[id] = true
    end
  end
end

local function touch(row)
  if not row.dirty then
    row.dirty = true
    dirty[#dirty + 1] = row
  end
end

local function is_live(status) return status == 'pending' or status == 'processing' end

local function count(tally, status, queue, by)
  if not is_live(status) then
    local field = status .. ':' .. queue
    tally[field] = (tally[field] or 0) + by
  end
end

local function write_counts(tally)
  for field, by in pairs(tally) do
    if by ~= 0 and call('HINCRBY', COUNTS, field, int(by)) == 0 then call('HDEL', COUNTS, field) end
  end
end

local function gather(lists, key, value, more)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = value
  if more then list[#list + 1] = more end
end

-- Removes ids from the indexes they stood in. A waiting job that is not among the due ones was marked as ready (claim.lua).
local function leave_all(leaving, marked)
  for key, ids in pairs(leaving) do
    if in_portions('ZREM', key, ids) < #ids and marked[key] then in_portions('ZREM', marked[key], ids) end
  end
end

-- Writes every touched row, and moves it from the index it stood in to the one it belongs to now.
local function flush()
  local states, leaving, marked, entering, tally = {}, {}, {}, {}, {}
  for _, row in ipairs(dirty) do
    states[#states + 1] = STATE .. row.id
    states[#states + 1] = state_of(row)
    local before = places[row.id]
    local key, score = place_of(row)
    if before and before.key ~= key then
      gather(leaving, before.key, row.id)
      if before.status == 'pending' then marked[before.key] = ready_key(before.queue, before.lane, before.priority) end
    end
    if not before or before.key ~= key or before.score ~= score then gather(entering, key, int(score), row.id) end
    if before then count(tally, before.status, before.queue, -1) end
    count(tally, row.status, row.queue, 1)
    if row.unique then
      local field = unique_field(row.queue, row.unique)
      if is_live(row.status) then
        call('HSET', UNIQUE, field, row.id)
      elseif call('HGET', UNIQUE, field) == row.id then
        call('HDEL', UNIQUE, field)
      end
    end
  end
  set_all(states)
  leave_all(leaving, marked)
  for key, values in pairs(entering) do in_portions('ZADD', key, values) end
  write_counts(tally)
  return #dirty > 0
end

-- The live job that owns a unique key. An owner that is gone (removed by hand) owns nothing any more.
local function owner_of(queue, key)
  local field = unique_field(queue, key)
  local id = call('HGET', UNIQUE, field)
  if not id then return nil end
  load({id})
  local row = rows[id]
  if row and is_live(row.status) and row.queue == queue and row.unique == key then return id end
  if row or not damaged[id] then
    call('HDEL', UNIQUE, field)
    return nil
  end
  return id
end
