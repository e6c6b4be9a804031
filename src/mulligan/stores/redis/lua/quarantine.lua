-- ARGV[2]: id; ARGV[3..5]: its state, body and extra as they were read; ARGV[6]: its new state; ARGV[7]: extra; ARGV[8..9]: the error and the
-- rest of its record; ARGV[10]: event. Sets a job that cannot be decoded to failed, if it is still as it was read. Answers 1 if it did.
local id = ARGV[2]
if (call('GET', STATE .. id) or '') ~= ARGV[3] or (call('GET', BODY .. id) or '') ~= ARGV[4]
  or extra_text(id, ARGV[3]) ~= ARGV[5] then
  return answer(false, 0)
end
-- If its state can be read, flush() knows where it stood. If not, it is looked for where it may stand.
load({id})
local row, left = row_of(id, ARGV[6]), {}
call('ZREM', LEASES, id)
for _, lane in ipairs(LANES) do
  for _, priority in ipairs(PRIORITIES) do
    call('ZREM', due_key(row.queue, lane, priority), id)
    call('ZREM', ready_key(row.queue, lane, priority), id)
    if row.group then
      local key = group_key(row.queue, lane, priority, row.group)
      call('ZREM', key, id)
      call('ZREM', waiting_key(row.queue, lane, priority), id)
      left[key] = {row.group, groups_key(row.queue, lane, priority)}
    end
  end
  call('ZREM', slots_key(row.queue, lane), id)
  if row.concurrency then call('ZREM', keyed_key(row.queue, lane, row.concurrency), id) end
end
drop_empty(left)
even_when_full()
call('SET', EXTRA .. id, ARGV[7])
add_record(id, ARGV[8], ARGV[9])
call('ZADD', IDS, '0', id)
call('SADD', prefix .. 'names', row.queue)
row.finished, row.updated = now, now
touch(row)
flush()
log(ARGV[10])
write_log()
return answer(true, 1)
