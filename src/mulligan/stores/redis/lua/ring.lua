-- The lines of a careful claim: of each lane the jobs without a group, then its groups in their turn. The way round them is that of
-- mulligan.core.ring, but for one thing: a stretch of a tenant with many groups begins behind `after`, if that is among them, and else at a
-- place that the claim's id gives by chance.
local VISITS_MAX, SPARE_GROUPS, NEWEST, TENANT_GROUPS = 500, 50, 20, 4 -- as in core/ring
local NAMES_AT_ONCE = 60

-- How many jobs of each due group are listed: core/ring.heads_of.
local function heads_of(limit, groups) return math.max(1, math.min(limit, math.ceil(4 * limit / math.max(1, groups)))) end

-- How far a claim goes round: core/ring.bounds_of.
local function bounds_of(limit, wide)
  local groups = limit + SPARE_GROUPS
  local share = math.max(TENANT_GROUPS, math.ceil(groups / limit))
  if wide then return {groups = VISITS_MAX, tenants = limit, visits = VISITS_MAX, share = share} end
  return {groups = groups, tenants = limit, visits = math.min(VISITS_MAX, math.max(2 * groups, share * limit)), share = share}
end

local NOW_TEXT = int(now)
local function first_due(key, limit) return call('ZRANGEBYSCORE', key, '-inf', NOW_TEXT, 'WITHSCORES', 'LIMIT', 0, limit) end

-- A group as it is visited: its name, its index and, if it is due, its first job.
local function visited(ask, lane, group)
  local key = ask.group_keys[lane] .. group
  local found = first_due(key, 1)
  return {group = group, tenant = tenant_of(group), key = key, first = found[1] and found or nil}
end

-- Visits the groups from behind `after` round to it, up to the bounds. Of a tenant with as many groups as its share the others are leapt
-- over. Answers them in their order, the names of such tenants, and whether there were more.
local function walk(ask, lane, bounds)
  local names, after = groups_key(ask.queue, lane, ask.priority), ask.after or ''
  local found, large, due, tenants, of_tenant, last = {}, {}, 0, 0, 0, nil
  for _, range in ipairs({{'(' .. after, '+'}, {'-', '[' .. after}}) do
    local from = range[1]
    last = nil
    while from do
      local batch = call('ZRANGEBYLEX', names, from, range[2], 'LIMIT', 0, NAMES_AT_ONCE)
      from = batch[NAMES_AT_ONCE] and '(' .. batch[NAMES_AT_ONCE] or nil
      for _, group in ipairs(batch) do
        local tenant = tenant_of(group)
        if tenant == last and of_tenant == bounds.share then
          from = '(' .. tenant .. BEHIND
          break
        end
        if tenant ~= last then
          if #found >= bounds.visits or (due >= bounds.groups and tenants >= bounds.tenants) then return found, large, true end
          last, tenants, of_tenant = tenant, tenants + 1, 0
        end
        local one = visited(ask, lane, group)
        found[#found + 1] = one
        of_tenant, due = of_tenant + 1, due + (one.first and 1 or 0)
        if of_tenant == bounds.share then large[tenant] = true end
      end
    end
  end
  return found, large, false
end

-- A stretch of a tenant's groups, and whether it has others.
local function stretch(ask, lane, tenant, groups, visits)
  local names, after = groups_key(ask.queue, lane, ask.priority), ask.after or ''
  local first, behind = '(' .. tenant .. SEPARATOR, '(' .. tenant .. BEHIND
  local rank, many = call('ZLEXCOUNT', names, '-', first), call('ZLEXCOUNT', names, first, behind)
  local at, found, due = 0, {}, 0
  if tenant_of(after) == tenant and string.find(after, SEPARATOR, 1, true) then
    at = math.fmod(call('ZLEXCOUNT', names, first, '[' .. after), many)
  elseif many > visits then
    at = math.fmod(tonumber(string.sub(redis.sha1hex(claim_id), 1, 8), 16), many)
  end
  while #found < math.min(visits, many) and due < groups do
    local batch = call('ZRANGE', names, rank + at, rank + math.min(at + NAMES_AT_ONCE, many) - 1)
    if #batch == 0 then break end
    for _, group in ipairs(batch) do
      if #found < math.min(visits, many) and due < groups then
        found[#found + 1] = visited(ask, lane, group)
        due = due + (found[#found].first and 1 or 0)
      end
    end
    at = math.fmod(at + #batch, many)
  end
  return found, #found < many
end

-- Puts stretches in the place of what was visited of tenants with many groups. Answers also where one of them has more.
local function with_stretches(ask, lane, bounds, found, large, is_cut)
  local more_groups, more_visits, within, kept, due, tenants = 0, 0, nil, {}, 0, 0
  for _, one in ipairs(found) do
    due = due + (one.first and 1 or 0)
    if not large[one.tenant] then kept[#kept + 1] = one end
  end
  for _ in pairs(large) do tenants = tenants + 1 end
  if not is_cut and tenants > 0 then -- what is left of the bounds is for them
    more_groups = math.floor(math.max(0, bounds.groups - due) / tenants)
    more_visits = math.floor(math.max(0, bounds.visits - #found) / tenants)
  end
  for tenant in pairs(large) do
    local own, has_more = stretch(ask, lane, tenant, bounds.share + more_groups, bounds.share + more_visits)
    if has_more then within = own[#own].group end
    for _, each in ipairs(own) do kept[#kept + 1] = each end
  end
  return kept, within
end

local function last_due(key, limit) return call('ZREVRANGEBYSCORE', key, int(now), '-inf', 'WITHSCORES', 'LIMIT', 0, limit) end

-- The groups of due jobs, of the first or the last ones of all groups together, and these jobs by group; nothing if the group of one of them
-- is not known.
local function groups_of_due(which, ask, lane, limit)
  local found, ids, jobs, order = which(waiting_key(ask.queue, lane, ask.priority), limit), {}, {}, {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  local texts = get_all(STATE, ids)
  for i, id in ipairs(ids) do
    local row = texts[i] and row_of(id, texts[i])
    if not row or not row.group or row.status ~= 'pending' then return nil end
    if not jobs[row.group] then order[#order + 1] = row.group end
    gather(jobs, row.group, {id = id, at = ask.fifo and row.created or tonumber(found[2 * i]),
      key = group_key(ask.queue, lane, ask.priority, row.group)})
  end
  return order, jobs
end

-- The first due jobs of a group in the order of creation, of the `looked_at` that fell due first.
local function oldest_of(key, heads, looked_at)
  local found, ids, entries = first_due(key, looked_at), {}, {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  local texts = get_all(STATE, ids)
  for i, id in ipairs(ids) do
    local row = texts[i] and row_of(id, texts[i])
    entries[i] = {id = id, at = row and row.created or 0, key = key}
  end
  table.sort(entries, by_time)
  for i = heads + 1, #entries do entries[i] = nil end
  return entries
end

local function group_line(ask, lane, one, heads, groups)
  local jobs = {}
  if ask.fifo then
    -- All groups together look at no more jobs than one marking does.
    jobs = oldest_of(one.key, heads, math.max(heads, math.floor(READY_MAX / groups)))
  else
    local found = heads == 1 and one.first or first_due(one.key, heads)
    for i = 1, #found, 2 do jobs[#jobs + 1] = {id = found[i], at = tonumber(found[i + 1]), key = one.key} end
  end
  return {lane = lane, group = one.group, jobs = jobs, is_cut = #jobs == heads}
end

-- The lines of everything that is due, if that is little.
local function few_lines(ask, lane, limit)
  local order, jobs = groups_of_due(first_due, ask, lane, limit)
  if not order then return nil end
  local lines = {}
  for i, group in ipairs(order) do
    if ask.fifo then table.sort(jobs[group], by_time) end
    lines[i] = {lane = lane, group = group, jobs = jobs[group], is_cut = false}
  end
  return lines
end

local function group_lines(ask, lane, limit, wide)
  ask.group_keys = ask.group_keys or {}
  ask.group_keys[lane] = group_key(ask.queue, lane, ask.priority, '') -- what the keys of all its groups begin with
  local many = call('ZCOUNT', waiting_key(ask.queue, lane, ask.priority), '-inf', int(now))
  if many == 0 then return {} end
  local few = many <= limit + SPARE_GROUPS and few_lines(ask, lane, many)
  if few then return few end
  local bounds, lines, due, listed, within = bounds_of(limit, wide), {}, {}, {}, nil
  local found, large, is_cut = walk(ask, lane, bounds)
  local last = is_cut and found[#found].group or nil
  found, within = with_stretches(ask, lane, bounds, found, large, is_cut)
  for _, one in ipairs(found) do
    if one.first then due[#due + 1], listed[one.group] = one, true end
  end
  local function list_also(groups)
    for _, group in ipairs(groups or {}) do
      if not listed[group] then due[#due + 1], listed[group] = visited(ask, lane, group), true end
    end
  end
  if is_cut and #due < limit then list_also(groups_of_due(first_due, ask, lane, limit + SPARE_GROUPS)) end
  if wide and (is_cut or within) then list_also(groups_of_due(last_due, ask, lane, NEWEST)) end
  local heads = heads_of(limit, #due)
  for i, one in ipairs(due) do lines[i] = group_line(ask, lane, one, heads, #due) end
  if last or within then
    lines[#lines + 1] = {lane = lane, group = last or within, jobs = {}, is_cut = true, is_within = not last}
  end
  return lines
end

-- All lines an ask may draw from, each with its terms.
local function lines_of(ask, limit, wide)
  local lines, waiting, groups = {}, {}, {}
  for _, lane in ipairs(ask.lane and {ask.lane} or LANES) do
    waiting[lane], groups[lane] = waiting_key(ask.queue, lane, ask.priority), groups_key(ask.queue, lane, ask.priority)
    local plain = (ask.fifo and marked_line or mixed_line)(ask.queue, lane, ask.priority, limit)
    for i = limit + 1, #plain do plain[i] = nil end
    lines[#lines + 1] = {lane = lane, jobs = plain, is_cut = false}
    if grouped[ask.queue] then
      for _, line in ipairs(group_lines(ask, lane, limit, wide)) do lines[#lines + 1] = line end
    end
  end
  for _, line in ipairs(lines) do
    line.queue, line.terms = ask.queue, terms_of(ask.limits, ask.queue, line.lane, line.group)
    line.waiting, line.groups = waiting[line.lane], groups[line.lane]
  end
  return lines
end

-- Lists more jobs of the groups of which all that was listed is taken. Answers whether there are such.
local function lengthen(ask, lines, limit, taken_ids)
  local wanted = {}
  for _, line in ipairs(lines) do
    local is_used_up = line.group and line.is_cut and #line.jobs > 0
    for _, job in ipairs(line.jobs) do is_used_up = is_used_up and taken_ids[job.id] end
    if is_used_up then wanted[#wanted + 1] = line end
  end
  for _, line in ipairs(wanted) do
    local one = {group = line.group, key = line.jobs[1].key}
    if limit > 1 then
      local longer = group_line(ask, line.lane, one, limit, #wanted)
      line.jobs, line.is_cut = longer.jobs, longer.is_cut
    end
  end
  return #wanted > 0
end
