-- Rows: the state of a job as a table. Loaded together, changed in memory, written together by flush().
-- A state is a stream of 27 values: eleven that a claim writes, six that a settlement writes besides, and those that neither a claim nor a
-- success changes. take.lua, finish.lua and whole.lua are hot: they copy the part they do not change as it is, without a table.
-- The last value says nothing. Lua keeps each text once, and finds it by a hash of every nth byte, counted from the last one: the states of a
-- batch, which are alike but for a digit somewhere, would each be compared with hundreds of others. So the first claim gives each an end.
local STATUSES = {pending = true, processing = true, done = true, failed = true, cancelled = true}
local rows, places, damaged, dirty = {}, {}, {}, {}

local function is_text_or_nil(value) return value == nil or type(value) == 'string' end

local function row_of(id, text)
  local ok, status, fence, attempts, run_at, updated, finished, claim_id, claim_place, owner, lease, slots, lane, generation, counts,
    settle_id, last_delay, extra, due, queue, priority, created, due_first, unique, cancel, group, concurrency, salt = pcall(decode, text)
  if not ok or not STATUSES[status] or type(fence) ~= 'number' or type(queue) ~= 'string' or type(priority) ~= 'number'
    or type(lane) ~= 'string' or type(generation) ~= 'number' or type(created) ~= 'number' or type(counts) ~= 'string'
    or (status == 'pending' and type(run_at) ~= 'number')
    or not (is_text_or_nil(slots) and is_text_or_nil(group) and is_text_or_nil(concurrency)) then
    return nil
  end
  return {id = id, status = status, fence = fence, queue = queue, priority = priority, lane = lane, attempts = attempts,
    generation = generation, run_at = run_at, created = created, updated = updated, finished = finished, due_first = due_first,
    due = due, counts = counts, claim_id = claim_id, claim_place = claim_place, settle_id = settle_id, owner = owner, lease = lease,
    last_delay = last_delay, cancel = cancel, unique = unique, extra = extra, slots = slots, group = group, concurrency = concurrency, salt = salt}
end

-- The last error and the result of a job, if it has one of them, as one or two texts; `where` is what its state says of them (layout.py).
local OWN_EXTRA, RECORDED, RECORD_ENTRIES, HISTORY_MAX, NIL = 1, 2, 3, 50, pack(nil)
local NEWEST_ERROR = int(1 - RECORD_ENTRIES) -- a text: a number is put in words anew for each command
local function extra_of(id, where)
  if where == OWN_EXTRA then return call('GET', EXTRA .. id) end
  local error = where == RECORDED and redis.pcall('LINDEX', HISTORY .. id, NEWEST_ERROR)
  if type(error) == 'string' then return error, NIL end
end

-- Adds to the records of a job.
local function add_record(id, error, rest)
  local key, most = HISTORY .. id, RECORD_ENTRIES * HISTORY_MAX
  if call('RPUSH', key, number(now), error, rest) > most then call('LTRIM', key, -most, -1) end
end

local function state_of(row)
  return pack(row.status, row.fence, row.attempts, row.run_at, row.updated, row.finished, row.claim_id, row.claim_place, row.owner,
    row.lease, row.slots, row.lane, row.generation, row.counts, row.settle_id, row.last_delay, row.extra, row.due, row.queue, row.priority,
    row.created, row.due_first, row.unique, row.cancel, row.group, row.concurrency, row.salt)
end

-- The index a row stands in, and its score there.
local function place_of(row)
  if row.status == 'pending' then
    if row.group then return group_key(row.queue, row.lane, row.priority, row.group), row.run_at end
    return due_key(row.queue, row.lane, row.priority), row.run_at
  end
  if row.status == 'processing' then return LEASES, row.lease or now end
  return finished_key(row.status), row.finished or now
end

-- The other indexes a row stands in, under the same score. Nothing for rows without a group and a limit.
local function more_of(row)
  if row.status == 'pending' then return row.group and {waiting_key(row.queue, row.lane, row.priority)} or nil end
  if row.status ~= 'processing' or not (row.slots or row.concurrency) then return nil end
  local keys = {}
  if row.slots then keys[1] = slots_key(row.queue, row.lane) end
  if row.concurrency then keys[#keys + 1] = keyed_key(row.queue, row.lane, row.concurrency) end
  return keys
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
      places[id] = {key = key, score = score, status = row.status, queue = row.queue, lane = row.lane, priority = row.priority,
        group = row.group, more = more_of(row)}
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

-- Groups whose jobs have left, as {group, groups_key} by their index: those without any more take no turns.
local function drop_empty(groups)
  for key, one in pairs(groups) do
    if call('EXISTS', key) == 0 then call('ZREM', one[2], one[1]) end
  end
end

-- Removes ids from the indexes they stood in. A waiting job that is not among the due ones was marked as ready (claim.lua).
local function leave_all(leaving, marked)
  for key, ids in pairs(leaving) do
    if in_portions('ZREM', key, ids) < #ids and marked[key] then in_portions('ZREM', marked[key], ids) end
  end
end

-- What flush() has to do with one row's indexes: adds it to the lists of those that leave and enter.
local function move(row, moves)
  local before, more = places[row.id], more_of(row)
  local key, score = place_of(row)
  if before and before.key ~= key then
    gather(moves.leaving, before.key, row.id)
    for _, other in ipairs(before.more or {}) do gather(moves.leaving, other, row.id) end
    if before.status == 'pending' then
      if before.group then
        moves.left[before.key] = {before.group, groups_key(before.queue, before.lane, before.priority)}
      else
        moves.marked[before.key] = ready_key(before.queue, before.lane, before.priority)
      end
    end
  end
  if before and before.key == key and before.score == score then return end
  gather(moves.entering, key, int(score), row.id)
  if not more then return end
  for _, other in ipairs(more) do gather(moves.entering, other, int(score), row.id) end
  if row.status == 'pending' then
    gather(moves.entering, groups_key(row.queue, row.lane, row.priority), '0', row.group)
    moves.grouped[row.queue] = true
  end
end

-- Writes every touched row, and moves it from the indexes it stood in to those it belongs to now.
local function flush()
  local states, moves, tally = {}, {leaving = {}, marked = {}, left = {}, entering = {}, grouped = {}}, {}
  for _, row in ipairs(dirty) do
    states[#states + 1] = STATE .. row.id
    states[#states + 1] = state_of(row)
    local before = places[row.id]
    move(row, moves)
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
  leave_all(moves.leaving, moves.marked)
  drop_empty(moves.left)
  for key, values in pairs(moves.entering) do in_portions('ZADD', key, values) end
  for queue in pairs(moves.grouped) do call('SADD', prefix .. 'grouped', queue) end
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
