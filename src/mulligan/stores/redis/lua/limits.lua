-- What limits allow and what starts take: the same as mulligan.core.limits, in integers below 2^53. A test compares the two.
-- A limit is {false, most, lane or false, by key} for slots, {key, rate, burst, ratio, lane or false, part or false, value or false} for a
-- bucket. A line's terms are those of its ask's limits that are for its jobs.
local TOKEN, SECOND_US, SEPARATOR, KEY_PART = 1000000, 1000000, '\31', 3

-- The parts of a group, from 0 on; nil where it has none.
local function parts_of_group(group)
  local parts, place = {}, 0
  for part in string.gmatch((group or '') .. SEPARATOR, '([^' .. SEPARATOR .. ']*)' .. SEPARATOR) do
    if part ~= '' then parts[place] = part end
    place = place + 1
  end
  return parts
end

local function slots_term(limit, queue, lane, parts)
  local most, of_lane, by_key = limit[2], limit[3], limit[4]
  if (of_lane and of_lane ~= lane) or (by_key and not parts[KEY_PART]) then return nil end
  local key = by_key and parts[KEY_PART] or nil
  return {most = most, text = format('%.0f', most) .. '|' .. (of_lane or '') .. '|' .. (by_key and 'key' or ''), queue = queue, lane = of_lane,
    key = key, is_own = by_key, scope = #queue .. ':' .. queue .. ':' .. (of_lane or '') .. (key and ':' .. key or '')}
end

local function bucket_term(limit, lane, parts)
  local key, part, value = limit[1], limit[6], limit[7]
  if part then
    local own = parts[part]
    if not own or (value and value ~= own) then return nil end
    if not value then key = key .. '/' .. own end
  end
  return {bucket = key, rate = limit[2], burst = limit[3], ratio = limit[4], draws = not limit[5] or limit[5] == lane,
    is_own = part and true or false}
end

local function terms_of(limits, queue, lane, group)
  local terms, parts = {}, parts_of_group(group)
  for _, limit in ipairs(limits or {}) do
    terms[#terms + 1] = limit[1] and bucket_term(limit, lane, parts) or (not limit[1] and slots_term(limit, queue, lane, parts)) or nil
  end
  return terms
end

-- The slots a job is claimed under, as a text for its row; nil if there are none.
local function slots_text(terms)
  local texts = {}
  for _, term in ipairs(terms) do
    if term.most then texts[#texts + 1] = term.text end
  end
  return #texts > 0 and concat(texts, ';') or nil
end

-- What has flowed into a bucket, at most `room`. The product of time and rate may be greater than what a double holds exactly, so it is
-- made of parts that are not.
local function inflow(elapsed, rate, room)
  local rest = math.fmod(elapsed, SECOND_US)
  local whole = (elapsed - rest) / SECOND_US * rate
  if whole >= room then return room end
  local low = math.fmod(rate, SECOND_US)
  local small = rest * low
  return math.min(room, whole + (rate - low) / SECOND_US * rest + (small - math.fmod(small, SECOND_US)) / SECOND_US)
end

-- What is in a bucket at a time; stored is {level, at}, or nil.
local function level_at(time, term, stored)
  if not stored then return term.burst end
  if stored[1] >= term.burst then return term.burst end
  return stored[1] + inflow(math.max(0, time - stored[2]), term.rate, term.burst - stored[1])
end

-- A ledger reads what it needs when it is asked: `count(term)` and `stored(bucket)`, each once for the same thing.
local function new_ledger(time, count, stored) return {time = time, count = count, stored = stored, counts = {}, levels = {}, touched = {}} end

local function copied(values)
  local copy = {}
  for key, value in pairs(values) do copy[key] = value end
  return copy
end

-- The same state, to be spent without consequences.
local function copy_of(ledger)
  local copy = copied(ledger)
  copy.counts, copy.levels, copy.touched = copied(ledger.counts), copied(ledger.levels), copied(ledger.touched)
  return copy
end

local function level_of(ledger, term)
  local level = ledger.levels[term.bucket]
  if not level then
    level = level_at(ledger.time, term, ledger.stored(term.bucket))
    ledger.levels[term.bucket] = level
  end
  return level
end

-- Notes what is in the buckets of these terms, also in those that a start does not draw from.
local function look_at(ledger, terms)
  for _, term in ipairs(terms) do
    if term.bucket then level_of(ledger, term) end
  end
end

-- Whether one more job under these terms may start; `own`: as far as those go that are its group's own.
local function admits(ledger, terms, own)
  for _, term in ipairs(terms) do
    if own and not term.is_own then
      -- It is for all.
    elseif term.most then
      if (ledger.counts[term.scope] or ledger.count(term)) >= term.most then return false end
    elseif term.draws and level_of(ledger, term) < TOKEN then
      return false
    end
  end
  return true
end

-- One job under these terms starts.
local function charge(ledger, terms)
  for _, term in ipairs(terms) do
    if term.most then
      ledger.counts[term.scope] = (ledger.counts[term.scope] or ledger.count(term)) + 1
    elseif term.draws then
      ledger.levels[term.bucket], ledger.touched[term.bucket] = level_of(ledger, term) - TOKEN, true
    elseif term.ratio ~= 0 then
      ledger.levels[term.bucket], ledger.touched[term.bucket] = math.min(term.burst, level_of(ledger, term) + term.ratio), true
    end
  end
end

-- How long until the buckets have a token each; nil if one of them has no flow, or if they all have one.
local function wait_of(ledger, terms)
  local longest = 0
  for _, term in ipairs(terms) do
    local lacking = term.draws and TOKEN - level_of(ledger, term) or 0
    if lacking > 0 then
      if term.rate <= 0 or term.burst < TOKEN then return nil end
      longest = math.max(longest, math.ceil(lacking * SECOND_US / term.rate))
    end
  end
  return longest > 0 and longest or nil
end
