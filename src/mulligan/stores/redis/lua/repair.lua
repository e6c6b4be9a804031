-- ARGV[2]: ids of jobs. Puts each into the indexes where it belongs, if it is not there. Answers how many were missing from an index,
-- how many unique keys had no owner, and flat what rests: status:queue and how many.
local ids, missing, ownerless, tally, resting = decode(ARGV[2]), 0, 0, {}, {}
load(ids)

local function enter(key, score, id)
  if tonumber(call('ZSCORE', key, id) or '-1') ~= score then
    call('ZADD', key, int(score), id)
    return 1
  end
  return 0
end

-- What only jobs with a group or a limit have: the other indexes, and the index of groups.
local function enter_more(row, score)
  local entered = 0
  for _, key in ipairs(more_of(row) or {}) do entered = entered + enter(key, score, row.id) end
  if row.group then
    call('SADD', prefix .. 'grouped', row.queue)
    if row.status == 'pending' then entered = entered + enter(groups_key(row.queue, row.lane, row.priority), 0, row.group) end
  end
  return entered
end

for _, id in ipairs(ids) do
  local row = rows[id]
  if row then
    local key, score = place_of(row)
    local marked = row.status == 'pending' and not row.group and call('ZSCORE', ready_key(row.queue, row.lane, row.priority), id)
    missing = missing + enter(IDS, 0, id) + (marked and 0 or enter(key, score, id)) + enter_more(row, score)
    call('SADD', prefix .. 'names', row.queue)
    count(tally, row.status, row.queue, 1)
    if row.unique and is_live(row.status) and not owner_of(row.queue, row.unique) then
      call('HSET', UNIQUE, unique_field(row.queue, row.unique), id)
      ownerless = ownerless + 1
    end
  end
end
for field, jobs in pairs(tally) do
  resting[#resting + 1] = field
  resting[#resting + 1] = jobs
end
return answer(false, missing, ownerless, resting)
