-- A claim in which limits or groups have a say; for others this file is passed over (scripts.py). A script runs alone, so what is read here
-- still holds when the jobs are taken.
local LEVELS, TOUCHED, BUCKET_MEMORY_US = prefix .. 'levels', prefix .. 'touched', 86400 * 1000000

-- A function that remembers its answers, each under the text that `name` makes of its argument.
local function remembered(name, read)
  local known = {}
  return function(value)
    local text = name(value)
    if known[text] == nil then known[text] = read(value) or false end
    return known[text]
  end
end

local function stored_level(bucket)
  local ok, level, at = pcall(decode, call('HGET', LEVELS, bucket) or '')
  return ok and type(level) == 'number' and type(at) == 'number' and {level, at} or nil
end

-- The entries to take, and the choice they come from. A choice that is not full looks further.
function pick_carefully()
  local lines, ledger, choice = {}, new_ledger(now,
    remembered(function(term) return term.scope end, function(term) return count_held(term.queue, term.lane, term.key) end),
    remembered(function(bucket) return bucket end, stored_level)), nil
  local function look(wide)
    for i, ask in ipairs(asks) do lines[i] = paused[ask.queue] and {} or lines_of(ask, total, wide) end
    choice = choose(total, asks, lines, ledger)
  end
  look(false)
  if #choice.jobs < total and choice.is_marked then look(true) end
  if #choice.jobs < total then
    local any = false
    for i, ask in ipairs(asks) do any = lengthen(ask, lines[i], total, choice.taken) or any end
    if any then choice = choose(total, asks, lines, ledger) end
  end
  choice.ledger = ledger
  for _, entry in ipairs(choice.jobs) do entry.slots = slots_text(entry.line.terms) end
  return choice.jobs, choice
end

-- Buckets that nobody has touched for long are forgotten; they begin full again.
local function forget_buckets()
  local old = call('ZRANGEBYSCORE', TOUCHED, '-inf', '(' .. int(now - BUCKET_MEMORY_US), 'LIMIT', 0, PORTION)
  if #old > 0 then
    call('HDEL', LEVELS, unpack(old))
    call('ZREM', TOUCHED, unpack(old))
  end
end

-- Takes the tokens of the jobs that were taken and can be run. Answers flat what is left in the buckets.
function charge_taken(choice, found)
  local ledger, levels = choice.ledger, {}
  for _, entry in ipairs(found > 0 and choice.jobs or {}) do
    if not entry.is_bad then charge(ledger, entry.line.terms) end
  end
  for bucket, level in pairs(ledger.levels) do
    levels[#levels + 1] = bucket
    levels[#levels + 1] = level
  end
  if not next(ledger.touched) then return levels end
  for bucket in pairs(ledger.touched) do
    call('HSET', LEVELS, bucket, pack(ledger.levels[bucket], now))
    call('ZADD', TOUCHED, int(now), bucket)
  end
  forget_buckets()
  return levels
end

-- When to claim next: `due`, or sooner because of what the choice could not take; -1 if that is not known.
function sooner(due, choice)
  if choice.has_more then return now end
  local open = choice.wait and now + choice.wait
  return open and (due < 0 or open < due) and open or due
end
