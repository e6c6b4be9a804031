-- ARGV[2]: what was lost, as JSON; ARGV[3]: the packed event; ARGV[4], ARGV[5]: a new epoch and the version of the layout, where they are gone.
-- Every process that is open notices the same loss; within a minute one note is enough.
local LOSSES, SAME_US, LOSSES_MAX = prefix .. 'losses', 60 * 1000000, 20
call('SETNX', KEYS[1], ARGV[4])
call('SETNX', prefix .. 'schema', ARGV[5])
local last = call('LINDEX', LOSSES, -1)
local ok, note = pcall(cjson.decode, last or '')
if not (ok and type(note) == 'table' and type(note.at_us) == 'number' and math.abs(now - note.at_us) < SAME_US) then
  call('RPUSH', LOSSES, ARGV[2])
  call('LTRIM', LOSSES, -LOSSES_MAX, -1)
  log(ARGV[3])
  write_log()
end
return answer(true)
