-- ARGV[2]: a status; ARGV[3]: how long ago at least; ARGV[4]: how many at most. Answers how many were removed, and how many looked at.
local status, removed, keys, gone, tally = ARGV[2], 0, {}, {}, {}
local index = finished_key(status)
local ids = call('ZRANGEBYSCORE', index, '-inf', int(now - tonumber(ARGV[3])), 'LIMIT', 0, tonumber(ARGV[4]))
local texts = get_all(STATE, ids)
for i, id in ipairs(ids) do
  local row = texts[i] and row_of(id, texts[i])
  -- An index may be wrong after somebody has edited keys; a job that is not in this status stays.
  if not (row and row.status ~= status) then
    for _, kind in ipairs({STATE, BODY, EXTRA, HISTORY, prefix .. 'receipts:'}) do keys[#keys + 1] = kind .. id end
    gone[#gone + 1] = id
    if texts[i] then removed = removed + 1 end
    if row then count(tally, status, row.queue, -1) end
  end
end
delete_all(keys)
in_portions('ZREM', IDS, gone)
in_portions('ZREM', index, ids)
write_counts(tally)
return answer(#ids > 0, removed, #ids)
