-- The indexes of jobs with a group, and lists by key.

-- Jobs with a group wait in indexes of their own, scored by run_at: those of one group, and all of the same queue, lane and priority. The
-- third index names the groups of the second, by their bytes.
local function group_key(queue, lane, priority, group)
  return prefix .. 'group:' .. lane .. ':' .. int(priority) .. ':' .. unique_field(queue, group)
end
local function waiting_key(queue, lane, priority) return prefix .. 'waiting:' .. queue .. ':' .. lane .. ':' .. int(priority) end
local function groups_key(queue, lane, priority) return prefix .. 'groups:' .. queue .. ':' .. lane .. ':' .. int(priority) end

local function gather(lists, key, value, more)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  list[#list + 1] = value
  if more then list[#list + 1] = more end
end
