-- ARGV[2]: a key, ARGV[3]: a text, ARGV[4]: the version it is written over, 0 if there is none. Answers the new version and its time; 0 if
-- the note has another version. A repeat of the write that made the present version is answered like that write.
local NOTES, given = prefix .. 'notes', tonumber(ARGV[4])
local known, version, updated, body = call('HGET', NOTES, ARGV[2]), 0, 0, nil
if known then version, updated, body = decode(known) end
if known and version == given + 1 and body == ARGV[3] then return answer(false, version, updated) end
if version ~= given then return answer(false, 0, 0) end
even_when_full()
call('HSET', NOTES, ARGV[2], pack(given + 1, now, ARGV[3]))
return answer(true, given + 1, now)
