-- A batch of any outcomes of different held jobs, each of which ends as planned. ARGV[2]: the errors of its records, each once, and the
-- outcomes, flat, again and again: id, fence, attempts, status, delay, the part of the state that a settlement writes, extra, and of a record
-- the place of its error and the rest; false where there is none. ARGV[3], ARGV[4]: the entry of the log, and how many events it holds. If one of the jobs is not held, or is to be cancelled instead, nothing is written, and
-- settle.lua judges them all. Like finish.lua it copies what it does not change; whoever fails often is claimed and settled often.
local WIDTH, UP_TO_REST, REST = 9, 18, 8
local errors, given = unpack(decode(ARGV[2]))
local unpack_limit, sub = cmsgpack.unpack_limit, string.sub
local ids, states, entering, extras, bare, freed, limited, tally, grouped = {}, {}, {}, {}, {}, {}, {}, {}, {}
local NOW, CLEARED = pack(now), pack(nil, nil, nil, nil, nil)
local LANE_FROM, LANE_TO = 2, 6 -- of what a settlement writes the lane comes first, and both have names of five letters

-- The name of an index, and a score as text: mostly those of the job before.
local last = {}
local function entry_of(queue, lane, priority, at)
  if queue ~= last.queue or lane ~= last.lane or priority ~= last.priority then
    last.queue, last.lane, last.priority, last.key = queue, lane, priority, due_key(queue, lane, priority)
  end
  if at ~= last.at then last.at, last.score = at, int(at) end
  return last.key, last.score
end
local AT = int(now)
for i = 1, #given, WIDTH do ids[#ids + 1] = given[i] end
local texts, keys = get_all(STATE, ids)

-- Sets the job at this place up to be written. Nothing if it does not end as planned.
local function planned(place, id, text)
  local base = (place - 1) * WIDTH
  local fence, after, part, extra = given[base + 2], given[base + 4], given[base + 6], given[base + 7]
  local ok, at_rest, status, held, _, _, _, _, _, _, _, _, slots, lane, _, _, _, _, had_extra, due = pcall(unpack_limit, text, UP_TO_REST)
  if not ok or status ~= 'processing' or held ~= fence or type(due) ~= 'number' then return nil end
  local sound, _, queue, priority, _, _, unique, cancel, group, concurrency = pcall(unpack_limit, text, REST, at_rest)
  if not sound or type(queue) ~= 'string' or type(priority) ~= 'number' or type(lane) ~= 'string' or not is_text_or_nil(group) then
    return nil
  end
  local is_pending = after == 'pending'
  if is_pending and cancel then return nil end
  local run_at = is_pending and now + given[base + 5] or nil
  local run_at_text = run_at and number(run_at) or NIL
  states[2 * place - 1] = keys[place]
  states[2 * place] = number(after) .. number(fence) .. number(given[base + 3]) .. run_at_text .. NOW .. (run_at and NIL or NOW) .. CLEARED
    .. part .. (run_at and run_at_text or number(due)) .. sub(text, at_rest + 1)
  local new_lane = sub(part, LANE_FROM, LANE_TO)
  if run_at and group then
    gather(entering, group_key(queue, new_lane, priority, group), int(run_at), id)
    gather(entering, waiting_key(queue, new_lane, priority), int(run_at), id)
    gather(entering, groups_key(queue, new_lane, priority), '0', group)
    grouped[queue] = true
  else
    if run_at then
      local key, score = entry_of(queue, new_lane, priority, run_at)
      gather(entering, key, score, id)
    else
      gather(entering, finished_key(after), AT, id)
    end
  end
  if extra then
    extras[#extras + 1], extras[#extras + 2] = EXTRA .. id, extra
  elseif had_extra == OWN_EXTRA then
    bare[#bare + 1] = EXTRA .. id
  end
  if unique and not is_pending then freed[#freed + 1] = {unique_field(queue, unique), id} end
  if slots then limited[#limited + 1] = {slots_key(queue, lane), id} end
  if concurrency then limited[#limited + 1] = {keyed_key(queue, lane, concurrency), id} end
  if not is_pending then count(tally, after, queue, 1) end
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
for place, id in ipairs(ids) do
  local base = (place - 1) * WIDTH
  if given[base + 8] then add_record(id, errors[given[base + 8]], given[base + 9]) end
end
write_counts(tally)
if tonumber(ARGV[4]) > 0 then append(ARGV[3], tonumber(ARGV[4]), now) end
return answer(true, 1)
