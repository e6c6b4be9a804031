-- Which of the waiting jobs a claim takes: the same as mulligan.core.choosing, function by function. A test compares the two.
-- A line is {queue, lane, group or nil, jobs, is_cut, terms}; a job in it is an entry {id, at, ...}, and gets its ask's place and its line.
local BEHIND = ' ' -- core/groups.behind

-- Whom a group is for; everything without one is one tenant.
local function tenant_of(group)
  local at = group and string.find(group, SEPARATOR, 1, true)
  return at and string.sub(group, 1, at - 1) or (group or '')
end

-- Entries of one tenant's lines, the oldest first.
local function oldest_first(place, lines)
  local entries = {}
  for number, line in ipairs(lines) do
    for _, job in ipairs(line.jobs) do
      job.ask, job.line, job.number = place, line, number
      entries[#entries + 1] = job
    end
  end
  if #lines > 1 then
    table.sort(entries, function(a, b)
      if a.at ~= b.at then return a.at < b.at end
      if a.id ~= b.id then return is_before(a.id, b.id) end
      return a.number < b.number
    end)
  end
  return entries
end

-- Tenants in the order in which an ask serves them: those behind `after`, then the others. Nearly all come in that order already.
local function in_order(names, after)
  local sorted, keys, wraps = {}, {}, {}
  for _, name in ipairs(names) do
    -- As their groups stand: a name may hold what sorts before the separator.
    local key = name .. SEPARATOR
    local does_wrap = not is_before(after, key)
    local low, high = 1, #sorted + 1
    while low < high do
      local place = high == #sorted + 1 and #sorted or math.floor((low + high) / 2)
      local is_behind = wraps[place] == does_wrap and is_before(keys[place], key) or (wraps[place] ~= does_wrap and does_wrap)
      if is_behind then low = place + 1 else high = place end
    end
    table.insert(sorted, low, name)
    table.insert(keys, low, key)
    table.insert(wraps, low, does_wrap)
  end
  return sorted
end

local function in_turns(place, lines, after)
  local tenants, names, queues, entries, longest = {}, {}, {}, {}, 0
  for _, line in ipairs(lines) do
    if #line.jobs > 0 then
      local name = tenant_of(line.group)
      if not tenants[name] then names[#names + 1] = name end
      gather(tenants, name, line)
    end
  end
  for i, name in ipairs(in_order(names, after)) do
    queues[i] = oldest_first(place, tenants[name])
    longest = math.max(longest, #queues[i])
  end
  for number = 1, longest do
    for _, queue in ipairs(queues) do
      if queue[number] then entries[#entries + 1] = queue[number] end
    end
  end
  return entries
end

-- The first `most` entries of an ask that would be admitted if it were alone.
local function admissible_of(ask, waiting, ledger, most)
  local spent, admitted = ask.limits and copy_of(ledger), {}
  for _, entry in ipairs(waiting) do
    if #admitted == most then break end
    if not spent or admits(spent, entry.line.terms) then
      if spent then charge(spent, entry.line.terms) end
      admitted[#admitted + 1] = entry
    end
  end
  return admitted
end

-- Up to `wanted` entries, shared out among the asks; `had` says how many each has. None if no limit admits any of those that wait.
local function one_round(wanted, asks, waiting, had, spent)
  local admissible, owed, available, lengths, lanes, owners, picks, picked = {}, {}, {}, {}, {}, {}, {}, {}
  for i, ask in ipairs(asks) do
    admissible[i] = admissible_of(ask, waiting[i], spent, wanted)
    available[i], lengths[i], owed[i] = #admissible[i], #waiting[i], math.max(0, ask.guaranteed - had[i])
    owners[i], lanes[i] = ask.queue, #ask.queue .. ask.queue .. (ask.lane or '')
  end
  -- Where a limit is shared and short, whoever comes first has it. So they come mixed, in the proportion they would have without it.
  local shares = allot(wanted, owed, lengths, lanes, owners)
  for place, take in ipairs(allot(wanted, owed, available, lanes, owners)) do
    for number = 0, take - 1 do picks[#picks + 1] = {number / math.max(1, shares[place]), place, number} end
  end
  table.sort(picks, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    if a[2] ~= b[2] then return a[2] < b[2] end
    return a[3] < b[3]
  end)
  for _, pick in ipairs(picks) do
    local entry = admissible[pick[2]][pick[3] + 1]
    if admits(spent, entry.line.terms) then
      charge(spent, entry.line.terms)
      picked[#picked + 1] = entry
    end
  end
  return picked
end

-- The queues where a limit held jobs back, and how long at the least it will do so, if that is known.
local function obstacles(waiting, spent)
  local seen, queues, held_back, least = {}, {}, {}, nil
  for _, own in ipairs(waiting) do
    for _, entry in ipairs(own) do
      local line = entry.line
      if not seen[line] then
        seen[line] = true
        if not admits(spent, line.terms) then
          if not queues[line.queue] then held_back[#held_back + 1], queues[line.queue] = line.queue, true end
          local wait = wait_of(spent, line.terms)
          if wait and (not least or wait < least) then least = wait end
        end
      end
    end
  end
  return held_back, least
end

-- Whether another look may find more: a line was cut, and all that was seen of it is taken.
local function has_more(lines, taken_ids)
  for _, own in ipairs(lines) do
    for _, line in ipairs(own) do
      local is_taken = line.is_cut
      for _, job in ipairs(line.jobs) do is_taken = is_taken and taken_ids[job.id] end
      if is_taken then return true end
    end
  end
  return false
end

-- Whether an ask leaves a job that nothing holds back that is its group's own.
local function is_open(waiting, spent)
  local seen = {}
  for _, entry in ipairs(waiting) do
    if not seen[entry.line] then
      seen[entry.line] = true
      if admits(spent, entry.line.terms, true) then return true end
    end
  end
  return false
end

-- Whether a place is not behind another on the way from behind `after` round to it.
local function is_reached(after, place, other)
  local wraps, other_wraps = not is_before(after, place), not is_before(after, other)
  if wraps ~= other_wraps then return other_wraps end
  return not is_before(other, place)
end

-- Where an ask begins next time: core/choosing.turns_of. `last` is the entry it served last, if any.
local function turn_of(after, lines, last, open)
  local stop, within, has_group
  for _, line in ipairs(lines) do
    has_group = has_group or line.group ~= nil
    if line.is_cut and line.group and #line.jobs == 0 then
      local place = tenant_of(line.group) .. BEHIND
      within = within or line.group
      if not line.is_within and (not stop or is_reached(after, place, stop)) then stop = place end
    end
  end
  local served = last and tenant_of(last.line.group) .. BEHIND
  if not has_group or (not served and open) then return after, has_group end
  if served and open and (not stop or is_reached(after, served, stop)) then return served, true end
  return stop or served or within or after, true
end

-- Where each ask begins next time; empty where no ask met a group.
local function next_after(asks, lines, jobs, waiting, spent)
  local last, answers, any = {}, {}, false
  for _, entry in ipairs(jobs) do last[entry.ask] = entry end
  for place, ask in ipairs(asks) do
    local has_group
    answers[place], has_group = turn_of(ask.after or '', lines[place], last[place], is_open(waiting[place], spent))
    any = any or has_group
  end
  return any and answers or {}
end

-- The entries to take, in the order of the asks. The ledger is not spent: charge it with what was really taken.
local function choose(wanted, asks, lines, ledger)
  local rank, waiting, jobs, had, chosen, ranks, is_marked = {}, {}, {}, {}, {}, 0, false
  for place, ask in ipairs(asks) do
    waiting[place], had[place] = {}, 0
    for _, entry in ipairs(in_turns(place, lines[place], ask.after or '')) do
      -- A job stands in the line of the first ask that lists it.
      if not rank[entry.id] then
        ranks = ranks + 1
        rank[entry.id] = ranks
        table.insert(waiting[place], entry)
      end
    end
    for _, line in ipairs(lines[place]) do is_marked = is_marked or (line.is_cut and #line.jobs == 0) end
  end
  local spent = copy_of(ledger)
  while #jobs < wanted do
    local more = one_round(wanted - #jobs, asks, waiting, had, spent)
    if #more == 0 then break end
    for _, entry in ipairs(more) do
      chosen[entry.id], had[entry.ask] = true, had[entry.ask] + 1
      jobs[#jobs + 1] = entry
    end
    for place, own in ipairs(waiting) do
      local left = {}
      for _, entry in ipairs(own) do
        if not chosen[entry.id] then left[#left + 1] = entry end
      end
      waiting[place] = left
    end
  end
  table.sort(jobs, function(a, b) return rank[a.id] < rank[b.id] end)
  for _, entry in ipairs(jobs) do look_at(ledger, entry.line.terms) end
  local choice = {jobs = jobs, held_back = {}, turns = next_after(asks, lines, jobs, waiting, spent), has_more = false, taken = chosen,
    is_marked = is_marked}
  if #jobs < wanted then
    choice.held_back, choice.wait = obstacles(waiting, spent)
    choice.has_more = has_more(lines, chosen)
  end
  return choice
end
