-- ARGV[2..6]: claim id, owner, total, lease, asks as {queue, lane or false, priority, guaranteed, whether by creation}.
-- Answers: the jobs as one text (each an array in the order of Job's fields), how many, the next due time or -1, and damaged ids.
local claim_id, owner, total, lease = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local CLAIMS, MEMORY_US = prefix .. 'claims', 3600 * 1000000
local ROW, NOTHING = '\220\0\39', '\192\192' -- an array of 39 values; two nils: no error, no result
local ROUNDS_MAX = 50
local pieces, bad = {}, {}

local asks, queues, paused = {}, {}, {}
for _, queue in ipairs(call('SMEMBERS', prefix .. 'paused')) do paused[queue] = true end
for i, given in ipairs(decode(ARGV[6])) do
  asks[i] = {queue = given[1], lane = given[2], priority = given[3], guaranteed = given[4], fifo = given[5]}
  queues[given[1]] = true
end

-- The parts of a body; nothing if it is damaged.
local function parts_of(body)
  local ok, first, limits, tail = pcall(decode, body or '')
  if ok and type(first) == 'string' and type(limits) == 'string' and type(tail) == 'string' then return first, limits, tail end
end

-- What an earlier claim of this id still holds, in its order. Rare, so it may look at everything that is being processed.
local function held()
  local ids, mine = call('ZRANGE', LEASES, 0, -1), {}
  load(ids)
  for _, id in ipairs(ids) do
    local row = rows[id]
    if row and row.status == 'processing' and row.claim_id == claim_id then mine[#mine + 1] = row end
  end
  table.sort(mine, function(a, b) return a.claim_place < b.claim_place end)
  for _, row in ipairs(mine) do
    local first, limits, tail = parts_of(call('GET', BODY .. row.id))
    local extra = row.extra and call('GET', EXTRA .. row.id) or NOTHING
    if first then
      local head = pack(row.lane, row.status, nil, row.created, row.updated, row.finished, row.due_first, row.attempts)
      local middle = pack(row.fence, row.claim_id, row.settle_id, row.owner, row.lease, row.last_delay)
      pieces[#pieces + 1] = concat({ROW, first, head, row.counts, limits, middle, extra, tail, pack(row.cancel, now)})
    else
      bad[#bad + 1] = row.id
    end
  end
  return #mine
end

-- Asks are simple where each is one index from its beginning, and no two share one. Then nothing is listed before it is taken.
local function are_simple()
  local seen = {}
  for _, ask in ipairs(asks) do
    if ask.fifo or not ask.lane then return false end
    local key = due_key(ask.queue, ask.lane, ask.priority)
    if seen[key] then return false end
    seen[key] = true
  end
  return true
end

local function prepare()
  local by_creation = {}
  for _, ask in ipairs(asks) do
    if ask.fifo then by_creation[ask.queue .. ':' .. ask.priority] = true end
  end
  for _, ask in ipairs(asks) do
    if not paused[ask.queue] then
      for _, lane in ipairs(ask.lane and {ask.lane} or LANES) do
        if ask.fifo then
          mark(ask.queue, lane, ask.priority)
        elseif not by_creation[ask.queue .. ':' .. ask.priority] then
          unmark(ask.queue, lane, ask.priority)
        end
      end
    end
  end
end

-- The jobs to take, as entries {id, key}.
local function pick(simple)
  local available, lines, wishes, lanes, owners, seen = {}, {}, {}, {}, {}, {}
  for i, ask in ipairs(asks) do
    wishes[i], owners[i], lanes[i] = ask.guaranteed, ask.queue, #ask.queue .. ask.queue .. (ask.lane or '')
    if paused[ask.queue] then
      available[i], lines[i] = 0, {}
    elseif simple then
      available[i] = math.min(total, call('ZCOUNT', due_key(ask.queue, ask.lane, ask.priority), '-inf', int(now)))
    else
      local line = {}
      for _, entry in ipairs(line_of(ask, total)) do
        if not seen[entry.id] then
          seen[entry.id] = true
          line[#line + 1] = entry
        end
      end
      available[i], lines[i] = #line, line
    end
  end
  local takes, picked = allot(total, wishes, available, lanes, owners), {}
  for i, ask in ipairs(asks) do
    if takes[i] > 0 and simple then
      local key = due_key(ask.queue, ask.lane, ask.priority)
      for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', int(now), 'LIMIT', 0, takes[i])) do
        picked[#picked + 1] = {id = id, key = key}
      end
    else
      for place = 1, takes[i] do picked[#picked + 1] = lines[i][place] end
    end
  end
  return picked
end

local unpack_limit, sub = cmsgpack.unpack_limit, string.sub
local CLAIM_PART = 10 -- of the state's values, those that a claim writes
local PROCESSING, UNTIMED = pack('processing'), pack(nil, now, nil, claim_id)
local HELD = pack(owner, now + lease)
local LANE_TEXTS = {fresh = pack('fresh', 'processing', nil), retry = pack('retry', 'processing', nil)}
local NIL, UPDATED, CLAIM, CALM = pack(nil), pack(now, nil), pack(claim_id), pack(false, now)

-- The new state of one job, and its row for the answer but for what is in the body. Nothing if it cannot be taken; then also whether that
-- is because the index is wrong.
local function taken(text, place)
  local ok, rest, status, fence, attempts = pcall(unpack_limit, text, CLAIM_PART)
  if ok and status ~= 'pending' and STATUSES[status] then return nil, true end
  if not ok or status ~= 'pending' or type(fence) ~= 'number' or type(attempts) ~= 'number' then return nil end
  local fine, _, lane, _, counts, settle_id, last_delay, extra, _, _, created, due_first, _, cancel = pcall(unpack_limit, text, 12, rest)
  if not fine or type(counts) ~= 'string' or type(created) ~= 'number' or type(due_first) ~= 'number' then return nil end
  local fence_text, attempts_text = number(fence + 1), number(attempts + 1)
  local state = PROCESSING .. fence_text .. attempts_text .. UNTIMED .. number(place) .. HELD .. sub(text, rest + 1)
  local head = (LANE_TEXTS[lane] or pack(lane, 'processing', nil)) .. number(created) .. UPDATED .. number(due_first) .. attempts_text .. counts
  local middle = fence_text .. CLAIM .. (settle_id and pack(settle_id) or NIL) .. HELD .. (last_delay and number(last_delay) or NIL)
  return state, head, middle, extra, cancel
end

-- Takes the picked jobs. If an index names a job that is not there to take, drops that entry, takes nothing, and answers false.
local function take(picked)
  local ids, states, leases, leaving, orphans = {}, {}, {}, {}, {}
  for place, entry in ipairs(picked) do ids[place] = entry.id end
  local texts, keys = get_all(STATE, ids)
  local heads, middles, extras, cancels = {}, {}, {}, {}
  local expires = int(now + lease)
  for place, entry in ipairs(picked) do
    local state, head, middle, extra, cancel
    if texts[place] then state, head, middle, extra, cancel = taken(texts[place], place) end
    if state then
      states[2 * place - 1], states[2 * place] = keys[place], state
      leases[2 * place - 1], leases[2 * place] = expires, entry.id
      heads[place], middles[place], extras[place], cancels[place] = head, middle, extra, cancel
      gather(leaving, entry.key, entry.id)
    else
      gather(orphans, entry.key, entry.id)
      if texts[place] and not head then bad[#bad + 1] = entry.id end
    end
  end
  if next(orphans) then
    for key, gone in pairs(orphans) do in_portions('ZREM', key, gone) end
    moved = true
    return false
  end
  for key, gone in pairs(leaving) do in_portions('ZREM', key, gone) end
  set_all(states)
  in_portions('ZADD', LEASES, leases)
  local bodies, composed = get_all(BODY, ids), #pieces
  for place, id in ipairs(ids) do
    local first, limits, tail = parts_of(bodies[place])
    if first then
      local extra = extras[place] and call('GET', EXTRA .. id) or NOTHING
      composed = composed + 1
      pieces[composed] = ROW .. first .. heads[place] .. limits .. middles[place] .. extra .. tail
        .. (cancels[place] and pack(true, now) or CALM)
    else
      bad[#bad + 1] = id
    end
  end
  return true
end

local function next_due()
  local soonest = -1
  local function consider(at)
    if at > now and (soonest < 0 or at < soonest) then soonest = at end
  end
  for queue in pairs(queues) do
    if not paused[queue] then
      for _, lane in ipairs(LANES) do
        for _, priority in ipairs(PRIORITIES) do
          local found = call('ZRANGEBYSCORE', due_key(queue, lane, priority), '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
          if found[2] then consider(tonumber(found[2])) end
          for _, id in ipairs(call('ZRANGE', ready_key(queue, lane, priority), 0, READY_MAX - 1)) do
            local text = call('GET', STATE .. id)
            local row = text and row_of(id, text)
            if row and row.status == 'pending' then consider(row.run_at) end
          end
        end
      end
    end
  end
  return soonest
end

local found
if call('ZSCORE', CLAIMS, claim_id) then
  found = held()
else
  local simple = are_simple()
  prepare()
  for _ = 1, ROUNDS_MAX do
    local picked = pick(simple)
    found = #picked
    if found == 0 or take(picked) then break end
    found = 0
  end
  if found > 0 then
    call('ZADD', CLAIMS, int(now), claim_id)
    call('ZREMRANGEBYSCORE', CLAIMS, '-inf', '(' .. int(now - MEMORY_US))
    moved = true
  end
end
for id in pairs(damaged) do bad[#bad + 1] = id end
return answer(moved, concat(pieces), #pieces, found < total and next_due() or -1, bad)
