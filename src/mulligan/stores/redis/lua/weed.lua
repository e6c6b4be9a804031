-- ARGV[2]: the key of an index, ARGV[3]: ids in it. Removes those whose job is gone, or stands in another index. Answers how many.
local key, ids, gone = ARGV[2], decode(ARGV[3]), {}
load(ids)
for _, id in ipairs(ids) do
  local row = rows[id]
  local belongs = damaged[id] or (row and (key == IDS or key == place_of(row)
    or (row.status == 'pending' and key == ready_key(row.queue, row.lane, row.priority))))
  if not belongs then gone[#gone + 1] = id end
end
return answer(false, in_portions('ZREM', key, gone))
