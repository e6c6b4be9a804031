-- ARGV[2]: a claim id. Answers the ids of the jobs it still holds, in its order. Looks at everything that is being processed.
local ids, mine, found = call('ZRANGE', LEASES, 0, -1), {}, {}
load(ids)
for _, id in ipairs(ids) do
  local row = rows[id]
  if row and row.status == 'processing' and row.claim_id == ARGV[2] then mine[#mine + 1] = row end
end
table.sort(mine, function(a, b) return a.claim_place < b.claim_place end)
for i, row in ipairs(mine) do found[i] = row.id end
return answer(false, found)
