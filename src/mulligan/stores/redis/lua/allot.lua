-- How a claim's total is shared among its asks: the same as mulligan.core.lending.allot, line by line. A test compares the two.
local function members_of(keys)
  local order, found = {}, {}
  for position, key in ipairs(keys) do
    if not found[key] then
      found[key] = {}
      order[#order + 1] = found[key]
    end
    table.insert(found[key], position)
  end
  return order
end

local function sum(members, values)
  local total = 0
  for _, position in ipairs(members) do total = total + values[position] end
  return total
end

local function lend(amount, members, takes, available)
  local left = amount
  for _, position in ipairs(members) do
    local extra = math.min(left, available[position] - takes[position])
    takes[position] = takes[position] + extra
    left = left - extra
  end
  return amount - left
end

local function lend_in_proportion(amount, lanes, guaranteed, takes, available)
  local left = amount
  while left > 0 do
    local waiting, weight = {}, 0
    for _, members in ipairs(lanes) do
      local own, open = sum(members, guaranteed), false
      for _, position in ipairs(members) do open = open or available[position] > takes[position] end
      if own > 0 and open then
        waiting[#waiting + 1] = members
        weight = weight + own
      end
    end
    if #waiting == 0 then break end
    local scale = math.max(1, math.floor(left / weight))
    for _, members in ipairs(waiting) do
      left = left - lend(math.min(left, scale * sum(members, guaranteed)), members, takes, available)
    end
  end
  return amount - left
end

-- `lanes` and `queues` name the group of each ask: its queue and lane, and its queue.
local function allot(total, wishes, available, lanes, queues)
  local left, takes, guaranteed, all = total, {}, {}, {}
  for i = 1, #wishes do
    all[i] = i
    guaranteed[i] = math.max(0, wishes[i])
    takes[i] = math.min(guaranteed[i], available[i], left)
    left = left - takes[i]
  end
  if left == 0 then return takes end
  local lane_groups = members_of(lanes)
  for _, groups in ipairs({lane_groups, members_of(queues)}) do
    for _, members in ipairs(groups) do
      local unused = sum(members, guaranteed) - sum(members, takes)
      left = left - lend(math.min(left, unused), members, takes, available)
    end
  end
  local unused = sum(all, guaranteed) - sum(all, takes)
  left = left - lend_in_proportion(math.min(left, unused), lane_groups, guaranteed, takes, available)
  lend(left, all, takes, available)
  return takes
end
