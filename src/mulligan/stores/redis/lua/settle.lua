-- Any changes, judged one after the other. ARGV[2]: for each {id, guard, its value, settle id, status, lane, attempts, generation,
-- counts, last delay, delay, extra, where that is, record, events if applied, events if cancelled instead, event if refused}; false where
-- there is none. A record is {error, the rest}, an event is packed.
-- The guard is 'held', 'lapsed' or 'dead'. Answers flat, where it is not simply applied: place, status, fence, run_at or -1, reason, applied.
local changes, ids, exceptions = decode(ARGV[2]), {}, {}
for i, change in ipairs(changes) do ids[i] = change[1] end
load(ids)

local function refusal_of(row, guard, value)
  if not row then return 'missing' end
  if guard == 'dead' then
    if row.status ~= 'failed' or row.generation ~= value then return 'not failed' end
    -- An earlier change of this batch may have freed or taken the key: what flush() will write is not yet there to be read.
    if row.unique then
      local owner = owner_of(row.queue, row.unique)
      for _, other in ipairs(dirty) do
        if other ~= row and other.unique == row.unique and other.queue == row.queue and is_live(other.status) then owner = other.id end
      end
      if owner and owner ~= row.id then return 'unique key taken' end
    end
    return nil
  end
  if row.status ~= 'processing' or row.fence ~= value then return 'stale' end
  if guard == 'lapsed' and (not row.lease or row.lease > now) then return 'not lapsed' end
  return nil
end

local function except(place, row, reason, applied)
  local at = #exceptions
  exceptions[at + 1], exceptions[at + 2], exceptions[at + 3] = place, row and row.status or '', row and row.fence or 0
  exceptions[at + 4], exceptions[at + 5], exceptions[at + 6] = row and row.run_at or -1, reason, applied and 1 or 0
end

local function write_extra(row, extra, where)
  if extra then
    call('SET', EXTRA .. row.id, extra)
  elseif row.extra == OWN_EXTRA then
    call('UNLINK', EXTRA .. row.id)
  end
  row.extra = where
end

local function apply(row, change)
  local requeued, status = change[2] == 'dead', change[5]
  -- Cancel wins over every way back to pending, except an operator's.
  if status == 'pending' and row.cancel and not requeued then status = 'cancelled' end
  row.status, row.lane, row.attempts, row.generation, row.counts = status, change[6], change[7], change[8], change[9]
  row.last_delay, row.settle_id, row.updated = change[10] or nil, change[4], now
  row.run_at = status == 'pending' and now + change[11] or nil
  row.due = row.run_at or row.due
  row.finished = status ~= 'pending' and now or nil
  if requeued then
    row.cancel = false
    if row.run_at then row.due_first = row.run_at end
  end
  row.claim_id, row.claim_place, row.owner, row.lease, row.slots = nil, nil, nil, nil, nil
  write_extra(row, change[12], change[13])
  if change[14] then add_record(row.id, unpack(change[14])) end
  touch(row)
end

even_when_full()
for place, change in ipairs(changes) do
  local row = rows[change[1]]
  local reason = refusal_of(row, change[2], change[3])
  if row and reason and row.settle_id == change[4] then
    except(place, row, '', true) -- A repeat: it was applied before, and nothing more is written.
  elseif reason then
    except(place, row, reason, false)
    if change[17] then log(change[17], reason, row and row.fence or 0) end
  else
    apply(row, change)
    local as_planned = row.status == change[5]
    if not as_planned or change[2] == 'dead' then except(place, row, '', true) end
    for _, event in ipairs((as_planned and change[15] or change[16]) or {}) do log(event, nil, row.fence) end
  end
end
local wrote = flush() or #logged > 0
write_log()
return answer(wrote, exceptions)
