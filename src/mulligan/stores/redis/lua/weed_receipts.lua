-- ARGV[2]: ids of jobs. Removes the receipts of those that are gone. Answers how many jobs that were.
local gone = {}
for _, id in ipairs(decode(ARGV[2])) do
  if call('EXISTS', STATE .. id, BODY .. id) == 0 then gone[#gone + 1] = prefix .. 'receipts:' .. id end
end
delete_all(gone)
return answer(false, #gone)
