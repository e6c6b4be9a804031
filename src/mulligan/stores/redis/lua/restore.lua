-- ARGV[2]: jobs of another store, each {id, state, body, extra or false, history, receipts}. Answers 1 for each stored, 0 for each that was there.
-- If a live one's unique key is taken, nothing is written, and its place is answered.
local jobs = decode(ARGV[2])
local ids, answers, owners, seen, fresh = {}, {}, {}, {}, {}
for i, job in ipairs(jobs) do ids[i] = job[1] end
local found = get_all(STATE, ids)
for i, job in ipairs(jobs) do
  answers[i] = 0
  if not found[i] and not seen[job[1]] then
    seen[job[1]] = true
    local row = row_of(job[1], job[2])
    if row.unique and is_live(row.status) then
      local field = unique_field(row.queue, row.unique)
      if owners[field] or owner_of(row.queue, row.unique) then return answer(false, i, {}) end
      owners[field] = true
    end
    answers[i] = 1
    fresh[#fresh + 1] = {row = row, job = job}
  end
end
for _, one in ipairs(fresh) do
  local id, job = one.row.id, one.job
  call('SET', BODY .. id, job[3])
  if job[4] then call('SET', EXTRA .. id, job[4]) end
  if #job[5] > 0 then in_portions('RPUSH', HISTORY .. id, job[5]) end
  if #job[6] > 0 then in_portions('HSET', prefix .. 'receipts:' .. id, job[6]) end
  call('ZADD', IDS, '0', id)
  call('SADD', prefix .. 'names', one.row.queue)
  touch(one.row)
end
flush()
return answer(#fresh > 0, 0, answers)
