-- ARGV[2], ARGV[3]: the id of a job and the fence it is held under; ARGV[4]: the name of a step; ARGV[5]: 1 if it has a value, ARGV[6];
-- ARGV[7]: how many receipts a job may have; ARGV[8]: how many need not be added up; ARGV[9]: what each counts beside name and text;
-- ARGV[10]: how many bytes they may have before another is added. Answers 'kept' and the receipt that is there now, 'lost', 'full' or 'large'.
local id, name = ARGV[2], ARGV[4]
load({id})
local row, key = rows[id], prefix .. 'receipts:' .. id
if not row or row.status ~= 'processing' or row.fence ~= tonumber(ARGV[3]) then return answer(false, 'lost', '') end
local known = call('HGET', key, name)
if known then return answer(false, 'kept', known) end
local count = call('HLEN', key)
if count >= tonumber(ARGV[7]) then return answer(false, 'full', '') end
if count > tonumber(ARGV[8]) then
  local bytes = 0
  for _, field in ipairs(call('HKEYS', key)) do bytes = bytes + #field + call('HSTRLEN', key, field) + tonumber(ARGV[9]) end
  if bytes > tonumber(ARGV[10]) then return answer(false, 'large', '') end
end
local text = pack(row.fence, now, ARGV[5] == '1' and ARGV[6] or nil)
even_when_full()
call('HSET', key, name, text)
return answer(true, 'kept', text)
