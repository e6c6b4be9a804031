-- Taking the jobs that a claim has picked, and composing its answer. ARGV[2..5]: claim id, owner, total, lease.
local claim_id, owner, total, lease = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local ROW, NOTHING = '\220\0\41', '\192\192' -- an array of 41 values; two nils: no error, no result
local pieces, composed, bad = {}, 0, {}

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
    local extra, result = extra_of(row.id, row.extra)
    if first then
      local head = pack(row.lane, row.status, nil, row.created, row.updated, row.finished, row.due_first, row.due, row.attempts)
      local middle = pack(row.fence, row.claim_id, row.settle_id, row.owner, row.lease, row.last_delay)
      composed = composed + 1
      pieces[composed] = concat({ROW, first, head, row.counts, limits, middle, extra or NOTHING, result or '', tail, pack(row.cancel, now)})
    else
      bad[#bad + 1] = row.id
    end
  end
  return #mine
end

local unpack_limit, sub, byte, char = cmsgpack.unpack_limit, string.sub, string.byte, string.char
local CLAIM_PART, OTHER_PARTS = 11, 15 -- of the state's values, those that a claim writes, and those behind them but for the last
local PROCESSING, UNTIMED = pack('processing'), pack(nil, now, nil, claim_id)
local HELD = pack(owner, now + lease)
local HELD_WITHOUT_SLOTS = HELD .. pack(nil)
local LANE_TEXTS = {fresh = pack('fresh', 'processing', nil), retry = pack('retry', 'processing', nil)}
local UPDATED, CLAIM, CALM = pack(now, nil), pack(claim_id), pack(false, now)
local UNSALTED, SALTS = byte(NIL), 128

-- A function of a text that remembers what it makes of it.
local function made_once(make)
  local known = {}
  return function(text)
    local result = known[text]
    if not result then
      result = make(text)
      known[text] = result
    end
    return result
  end
end

-- How the places of a claim's jobs, which all differ, and the heads of texts of some length are packed: cmsgpack takes longer for one of
-- them than all else of a row.
local function place_text(place)
  if place < 128 then return char(place) end
  if place >= 65536 then return pack(place) end
  local low = place % 256
  return char(205, (place - low) / 256, low)
end
local short_head = made_once(function(length) return length < 32 and char(160 + length) or char(217, length) end)
local HEADS_UP_TO = 255

local claimed_under = made_once(function(fence_text) return fence_text .. CLAIM end)
local held_after = made_once(function(last_delay) return HELD .. (last_delay and number(last_delay) or NIL) end)

-- The new state of one job, and what its row for the answer has of it in parts; at last the index of its concurrency key, if it has
-- one. Nothing if it cannot be taken; then also whether that is because the index is wrong.
local function taken(text, place, slots)
  local ok, rest, status, fence, attempts = pcall(unpack_limit, text, CLAIM_PART)
  if ok and status ~= 'pending' and STATUSES[status] then return nil, true end
  if not ok or status ~= 'pending' or type(fence) ~= 'number' or type(attempts) ~= 'number' then return nil end
  local fine, _, lane, _, counts, settle_id, last_delay, extra, due, queue, _, created, due_first, _, cancel, _, key =
    pcall(unpack_limit, text, OTHER_PARTS, rest)
  if not fine or type(counts) ~= 'string' or type(created) ~= 'number' or type(due_first) ~= 'number'
    or type(due) ~= 'number' or (key and type(key) ~= 'string') or not is_text_or_nil(settle_id) then
    return nil
  end
  local fence_text, attempts_text = number(fence + 1), number(attempts + 1)
  local is_unsalted = byte(text, -1) == UNSALTED
  local state = PROCESSING .. fence_text .. attempts_text .. UNTIMED .. place_text(place)
    .. (slots and HELD .. pack(slots) or HELD_WITHOUT_SLOTS) .. sub(text, rest + 1, is_unsalted and -2 or -1)
    .. (is_unsalted and char(place % SALTS) or '')
  local head = (LANE_TEXTS[lane] or pack(lane, 'processing', nil)) .. number(created) .. UPDATED .. number(due_first) .. number(due)
    .. attempts_text .. counts
  return state, head, fence_text, settle_id, last_delay or false, extra, cancel, key and keyed_key(queue, lane, key)
end

-- Adds a row to the answer, in as few new texts as can be: each costs more than its place in the list of pieces.
local function compose(first, head, limits, claimed, settle_id, held_text, extra, result, tail, cancel)
  local at, head_of_settle_id, text_of_settle_id = #pieces, NIL, ''
  if settle_id and #settle_id <= HEADS_UP_TO then
    head_of_settle_id, text_of_settle_id = short_head(#settle_id), settle_id
  elseif settle_id then
    head_of_settle_id = pack(settle_id)
  end
  pieces[at + 1], pieces[at + 2], pieces[at + 3], pieces[at + 4], pieces[at + 5] = ROW, first, head, limits, claimed
  pieces[at + 6], pieces[at + 7] = head_of_settle_id, text_of_settle_id
  pieces[at + 8], pieces[at + 9], pieces[at + 10], pieces[at + 11] = held_text, extra or NOTHING, result or '', tail
  pieces[at + 12] = cancel and pack(true, now) or CALM
  composed = composed + 1
end

-- Lists the other indexes that an entry of a group leaves; `line` is that of ring.lua.
local function leave_group(entry, line, leaving, left)
  gather(leaving, line.waiting, entry.id)
  left[entry.key] = {line.group, line.groups}
end

-- Takes the picked jobs. If an index names a job that is not there to take, drops that entry, takes nothing, and answers false.
local function take(picked)
  local ids, states, leases, leaving, left, orphans, bare, limited, bodiless = {}, {}, {}, {}, {}, {}, {}, {}, {}
  for place, entry in ipairs(picked) do ids[place] = entry.id end
  local texts, keys = get_all(STATE, ids)
  local bodies = get_all(BODY, ids)
  local expires = int(now + lease)
  for place, entry in ipairs(picked) do
    local id, line, text, state, head, fence, settle_id, delay, where, cancel, keyed = entry.id, entry.line, texts[place], nil
    if text then state, head, fence, settle_id, delay, where, cancel, keyed = taken(text, place, entry.slots) end
    if state then
      local at = 2 * place
      states[at - 1], states[at], leases[at - 1], leases[at] = keys[place], state, expires, id
      gather(leaving, entry.key, id)
      if line and line.group then leave_group(entry, line, leaving, left) end
      if keyed then gather(limited, keyed, expires, id) end
      if entry.slots then gather(limited, slots_key(line.queue, line.lane), expires, id) end
      local first, limits, tail = parts_of(bodies[place])
      if first then
        local extra, result = extra_of(id, where)
        compose(first, head, limits, claimed_under(fence), settle_id, held_after(delay), extra, result, tail, cancel)
      else
        bodiless[#bodiless + 1] = entry
      end
    else
      gather(orphans, entry.key, id)
      if line and line.group then leave_group(entry, line, orphans, bare) end
      if text and not head then bad[#bad + 1] = id end
    end
  end
  if next(orphans) then
    for key, gone in pairs(orphans) do in_portions('ZREM', key, gone) end
    drop_empty(bare)
    moved, pieces, composed = true, {}, 0
    return false
  end
  for _, entry in ipairs(bodiless) do
    entry.is_bad = true
    bad[#bad + 1] = entry.id
  end
  for key, gone in pairs(leaving) do in_portions('ZREM', key, gone) end
  drop_empty(left)
  set_all(states)
  in_portions('ZADD', LEASES, leases)
  for key, values in pairs(limited) do in_portions('ZADD', key, values) end
  return true
end
