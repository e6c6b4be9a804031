-- ARGV[2]: the kinds and the jobs (new.lua). Answers flat: the place of each job another one stands for, and that one's id.
local kinds, jobs = unpack(decode(ARGV[2]))
local answers, wrote = insert_all(kinds, jobs)
local others = {}
for i, owner in ipairs(answers) do
  if owner then
    others[#others + 1] = i
    others[#others + 1] = owner
  end
end
return answer(wrote, others)
