-- ARGV[2]: ids. Answers for each what it was: a status, 'missing', or 'pending' where it was cancelled at once.
local ids, answers = decode(ARGV[2]), {}
load(ids)

-- The event of a cancelled job: its task is in the body.
local function event_of(row)
  local ok, head = pcall(decode, call('GET', BODY .. row.id) or '')
  local fine, _, _, _, task = pcall(cmsgpack.unpack_limit, ok and head or '', 3)
  return pack({kind = 'CANCELLED', at_us = now, job_id = row.id, queue = row.queue, task = fine and type(task) == 'string' and task or '',
    fence = row.fence, attempt = row.attempts})
end

for place, id in ipairs(ids) do
  local row = rows[id]
  answers[place] = row and row.status or 'missing'
  if row and row.status == 'pending' then
    row.status, row.cancel, row.run_at, row.finished, row.updated = 'cancelled', true, nil, now, now
    touch(row)
    log(event_of(row))
  elseif row and row.status == 'processing' and not row.cancel then
    row.cancel = true
    touch(row)
  end
end
even_when_full()
local wrote = flush()
write_log()
return answer(wrote, answers)
