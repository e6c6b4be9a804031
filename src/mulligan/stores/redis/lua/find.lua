-- ARGV[2]: {status, queue, task, lane, schedule, tag}, false where it does not matter; ARGV[3]: how many; ARGV[4]: below this id, or empty.
-- Answers the jobs that match, newest first, and the id to go on below; it is empty at the end. Looks at a bounded number of jobs.
local LOOK_MAX, SORT_MAX = 2000, 2000
local wanted, limit, below = decode(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local status, queue, task, lane, schedule, tag = wanted[1], wanted[2], wanted[3], wanted[4], wanted[5], wanted[6]
local found, looked = {}, 0

local function tail_matches(tail)
  local ok, of, _, _, _, _, _, tags = pcall(decode, tail)
  if not ok or (schedule and of ~= schedule) then return false end
  if not tag then return true end
  for _, one in ipairs(type(tags) == 'table' and tags or {}) do
    if one == tag then return true end
  end
  return false
end

local function body_matches(id)
  if not (task or schedule or tag) then return true end
  local ok, head, _, tail = pcall(decode, call('GET', BODY .. id) or '')
  if not ok or type(head) ~= 'string' or type(tail) ~= 'string' then return false end
  local fine, _, _, _, name = pcall(cmsgpack.unpack_limit, head, 3)
  if task and not (fine and name == task) then return false end
  return not (schedule or tag) or tail_matches(tail)
end

local function matches(id, text)
  local row = row_of(id, text)
  if not row then return not (status or queue or task or lane or schedule or tag) end
  return (not status or row.status == status) and (not queue or row.queue == queue) and (not lane or row.lane == lane) and body_matches(id)
end

-- Looks through ids; whether the page is full.
local function look(ids)
  local texts = get_all(STATE, ids)
  for i, id in ipairs(ids) do
    looked, below = looked + 1, id
    if texts[i] and matches(id, texts[i]) then
      found[#found + 1] = raw_of(id, texts[i], false)
      if #found >= limit then return true end
    end
  end
  return false
end

-- Few jobs of a status are sorted by id; of many, the newest ids are gone through.
local index = status == 'processing' and LEASES or (status and status ~= 'pending' and finished_key(status))
if index and call('ZCARD', index) <= SORT_MAX then
  local ids, portion = {}, {}
  for _, id in ipairs(call('ZRANGE', index, 0, -1)) do
    if below == '' or is_before(id, below) then ids[#ids + 1] = id end
  end
  table.sort(ids, function(a, b) return is_before(b, a) end)
  for from = 1, #ids, 200 do
    portion = {unpack(ids, from, math.min(from + 199, #ids))}
    if look(portion) then return answer(false, found, below) end
  end
  return answer(false, found, '')
end
while looked < LOOK_MAX do
  local ids = call('ZREVRANGEBYLEX', IDS, below == '' and '+' or '(' .. below, '-', 'LIMIT', 0, 200)
  if #ids == 0 then return answer(false, found, '') end
  if look(ids) then break end
end
return answer(false, found, below)
