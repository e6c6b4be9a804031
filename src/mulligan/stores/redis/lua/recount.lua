-- ARGV[2]: the beat when counting began; ARGV[3]: flat, status:queue and how many. Writes the tallies anew, unless somebody wrote meanwhile.
-- Answers how many were wrong, or -1.
if (call('GET', KEYS[2]) or '0') ~= ARGV[2] then return answer(false, -1) end
local counted, right, wrong = decode(ARGV[3]), {}, 0
for i = 1, #counted, 2 do right[counted[i]] = counted[i + 1] end
local stored = call('HGETALL', COUNTS)
for i = 1, #stored, 2 do
  if tonumber(stored[i + 1]) ~= (right[stored[i]] or 0) then wrong = wrong + 1 end
  if not right[stored[i]] then call('HDEL', COUNTS, stored[i]) end
  if right[stored[i]] == tonumber(stored[i + 1]) then right[stored[i]] = nil end
end
for field, jobs in pairs(right) do
  if call('HSET', COUNTS, field, int(jobs)) == 1 then wrong = wrong + 1 end
end
return answer(wrong > 0, wrong)
