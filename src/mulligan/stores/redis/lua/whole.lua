-- A batch of any outcomes of different held jobs, each of which ends as planned. ARGV[2] is flat, again and again: id, fence, attempts, status,
-- delay, the part of the state that a settlement writes, extra or false, a record or false, and up to two events or false, the last three
-- packed already. If one of the jobs is not held, or is to be cancelled instead, nothing is written, and settle.lua judges them all. Like finish.lua it copies what it does not change; whoever fails often is claimed and settled often.
local WIDTH, CLAIM_PART, SETTLE_PART, UP_TO_DUE, HISTORY_MAX = 10, 11, 6, 4, 50
local given, unpack_limit, sub = decode(ARGV[2]), cmsgpack.unpack_limit, string.sub
local ids, states, entering, extras, bare, freed, limited, tally, records, grouped = {}, {}, {}, {}, {}, {}, {}, {}, {}, {}
local NIL, NOW, CLEARED = pack(nil), pack(now), pack(nil, nil, nil, nil, nil)
for i = 1, #given, WIDTH do ids[#ids + 1] = given[i] end
local texts, keys = get_all(STATE, ids)

-- Sets the job at this place up to be written. Nothing if it does not end as planned.
local function planned(place, id, text)
  local base = (place - 1) * WIDTH
  local fence, after, part, extra, record = given[base + 2], given[base + 4], given[base + 6], given[base + 7], given[base + 8]
  local ok, middle, status, held, _, _, _, _, _, _, _, _, slots = pcall(unpack_limit, text, CLAIM_PART)
  if not ok or status ~= 'processing' or held ~= fence then return nil end
  local fine, rest, lane, _, _, _, _, had_extra = pcall(unpack_limit, text, SETTLE_PART, middle)
  local sound, at_due, queue, priority = pcall(unpack_limit, text, UP_TO_DUE, fine and rest or 0)
  local whole, at_unique, due, unique, cancel, group, concurrency
  if sound then
    whole, at_unique, due = pcall(unpack_limit, text, 1, at_due)
    if whole then whole, _, unique, cancel, group, concurrency = pcall(unpack_limit, text, 4, at_unique) end
  end
  if not whole or type(queue) ~= 'string' or type(priority) ~= 'number' or type(lane) ~= 'string' or not is_text_or_nil(group) then
    return nil
  end
  local is_pending = after == 'pending'
  if is_pending and cancel then return nil end
  local run_at = is_pending and now + given[base + 5] or nil
  local run_at_text = run_at and number(run_at) or NIL
  states[2 * place - 1] = keys[place]
  states[2 * place] = number(after) .. number(fence) .. number(given[base + 3]) .. run_at_text .. NOW .. (run_at and NIL or NOW) .. CLEARED
    .. part .. sub(text, rest + 1, at_due) .. (run_at and run_at_text or sub(text, at_due + 1, at_unique)) .. sub(text, at_unique + 1)
  -- The lane it goes to is the first value of what a settlement writes.
  local _, new_lane = unpack_limit(part, 1)
  if run_at and group then
    gather(entering, group_key(queue, new_lane, priority, group), int(run_at), id)
    gather(entering, waiting_key(queue, new_lane, priority), int(run_at), id)
    gather(entering, groups_key(queue, new_lane, priority), '0', group)
    grouped[queue] = true
  else
    gather(entering, run_at and due_key(queue, new_lane, priority) or finished_key(after), int(run_at or now), id)
  end
  if extra then
    extras[#extras + 1], extras[#extras + 2] = EXTRA .. id, extra
  elseif had_extra then
    bare[#bare + 1] = EXTRA .. id
  end
  if unique and not is_pending then freed[#freed + 1] = {unique_field(queue, unique), id} end
  if slots then limited[#limited + 1] = {slots_key(queue, lane), id} end
  if concurrency then limited[#limited + 1] = {keyed_key(queue, lane, concurrency), id} end
  if not is_pending then count(tally, after, queue, 1) end
  if record then records[#records + 1] = {HISTORY .. id, NOW .. record} end
  for place_of_event = base + 9, base + 10 do
    if given[place_of_event] then logged[#logged + 1] = NOW .. run_at_text .. NIL .. number(fence) .. given[place_of_event] end
  end
  return true
end

for place, id in ipairs(ids) do
  if not (texts[place] and planned(place, id, texts[place])) then return answer(false, 0) end
end
even_when_full()
set_all(states)
set_all(extras)
delete_all(bare)
in_portions('ZREM', LEASES, ids)
for _, pair in ipairs(limited) do call('ZREM', pair[1], pair[2]) end
for key, values in pairs(entering) do in_portions('ZADD', key, values) end
for queue in pairs(grouped) do call('SADD', prefix .. 'grouped', queue) end
for _, pair in ipairs(freed) do
  if call('HGET', UNIQUE, pair[1]) == pair[2] then call('HDEL', UNIQUE, pair[1]) end
end
for _, pair in ipairs(records) do
  if call('RPUSH', pair[1], pair[2]) > HISTORY_MAX then call('LTRIM', pair[1], -HISTORY_MAX, -1) end
end
write_counts(tally)
write_log()
return answer(true, 1)
