-- ARGV: see asks.lua and take.lua. Answers: the jobs as one text (each an array in the order of Job's fields), how many, the next due time
-- or -1, and damaged ids. Where limits or groups have a say (careful.lua) also: queues held back, turns, and flat the levels of buckets.
local CLAIMS, MEMORY_US = prefix .. 'claims', 3600 * 1000000
local ROUNDS_MAX = 50

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

-- The jobs to take, as entries {id, key}, where neither limits nor groups have a say.
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
          if grouped[queue] then
            found = call('ZRANGEBYSCORE', waiting_key(queue, lane, priority), '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
            if found[2] then consider(tonumber(found[2])) end
          end
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

local found, choice = 0, nil
if call('ZSCORE', CLAIMS, claim_id) then
  found = held()
else
  local simple = are_simple()
  prepare()
  for _ = 1, ROUNDS_MAX do
    local picked
    if is_careful then
      picked, choice = pick_carefully()
    else
      picked = pick(simple)
    end
    if #picked == 0 then break end
    if take(picked) then
      found = #picked
      break
    end
  end
  if found > 0 then
    call('ZADD', CLAIMS, int(now), claim_id)
    call('ZREMRANGEBYSCORE', CLAIMS, '-inf', '(' .. int(now - MEMORY_US))
    moved = true
  end
end
for id in pairs(damaged) do bad[#bad + 1] = id end
local due = found < total and next_due() or -1
if not choice then return answer(moved, concat(pieces), composed, due, bad) end
if found < total then due = sooner(due, choice) end
local levels = charge_taken(choice, found)
return answer(moved, concat(pieces), composed, due, bad, choice.held_back, choice.turns, levels)
