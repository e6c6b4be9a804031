-- ARGV[2]: ids of jobs. Answers for each, flat, the names of its receipts and what receipt.lua packed.
local found = {}
for i, id in ipairs(decode(ARGV[2])) do found[i] = call('HGETALL', prefix .. 'receipts:' .. id) end
return answer(false, found)
