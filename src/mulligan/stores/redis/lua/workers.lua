-- Answers the workers, flat: what each told of itself, and when it was last seen.
local found = {}
local told = call('HGETALL', prefix .. 'workers')
for i = 1, #told, 2 do
  found[#found + 1] = told[i + 1]
  found[#found + 1] = tonumber(call('ZSCORE', prefix .. 'seen', told[i]) or '0')
end
return answer(false, found)
