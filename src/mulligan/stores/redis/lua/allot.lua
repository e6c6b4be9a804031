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
    local waiting, weights, weight = {}, {}, 0
    for _, members in ipairs(lanes) do
      local open = false
      for _, position in ipairs(members) do open = open or available[position] > takes[position] end
      if open then
        waiting[#waiting + 1] = members
        weights[#waiting] = sum(members, guaranteed)
        weight = weight + weights[#waiting]
      end
    end
    if weight == 0 then break end
    local round, reached, given = left, 0, 0
    for place, members in ipairs(waiting) do
      reached = reached + weights[place]
      local upto = math.ceil(round * reached / weight)
      left = left - lend(upto - given, members, takes, available)
      given = upto
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
