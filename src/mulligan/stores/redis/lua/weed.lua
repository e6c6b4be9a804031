-- ARGV[2]: the key of an index, ARGV[3]: ids in it. Removes those whose job is gone, or stands in other indexes. Answers how many.
local key, ids, gone = ARGV[2], decode(ARGV[3]), {}
load(ids)

local function belongs(row)
  if key == IDS or key == place_of(row) then return true end
  for _, other in ipairs(more_of(row) or {}) do
    if key == other then return true end
  end
  return row.status == 'pending' and not row.group and key == ready_key(row.queue, row.lane, row.priority)
end

for _, id in ipairs(ids) do
  if not damaged[id] and not (rows[id] and belongs(rows[id])) then gone[#gone + 1] = id end
end
return answer(false, in_portions('ZREM', key, gone))
