-- ARGV[2]: how the keys of notes begin. Answers them flat: key, and the note as note.lua packs it.
local stored, found = call('HGETALL', prefix .. 'notes'), {}
for i = 1, #stored, 2 do
  if string.sub(stored[i], 1, #ARGV[2]) == ARGV[2] then
    found[#found + 1] = stored[i]
    found[#found + 1] = stored[i + 1]
  end
end
return answer(false, found)
