-- A batch of nothing but successes of different jobs. ARGV[2] is flat: id, fence, attempts, the part of the state that a settlement writes,
-- extra or false, again and again. If one of them is not held, nothing is written, and settle.lua judges them all.
local given = decode(ARGV[2])
local WIDTH, UP_TO_DUE, REST, OWN_EXTRA = 5, 17, 9, 1
local unpack_limit = cmsgpack.unpack_limit
local DONE, RESTING = pack('done'), pack(nil, now, now, nil, nil, nil, nil, nil)
local ids, states, resting, extras, bare, freed, tally, limited = {}, {}, {}, {}, {}, {}, {}, {}
for i = 1, #given, WIDTH do ids[(i - 1) / WIDTH + 1] = given[i] end
local texts, keys = get_all(STATE, ids)
local at = int(now)
for i, id in ipairs(ids) do
  local base, text = (i - 1) * WIDTH, texts[i]
  if not text then return answer(false, 0) end
  local ok, rest, status, fence, _, _, _, _, _, _, _, _, slots, lane, _, _, _, _, extra = pcall(unpack_limit, text, UP_TO_DUE)
  if not ok or status ~= 'processing' or fence ~= given[base + 2] then return answer(false, 0) end
  local sound, _, _, queue, _, _, _, unique, _, _, concurrency = pcall(unpack_limit, text, REST, rest)
  if not sound or type(queue) ~= 'string' then return answer(false, 0) end
  states[2 * i - 1] = keys[i]
  states[2 * i] = DONE .. number(fence) .. number(given[base + 3]) .. RESTING .. given[base + 4] .. string.sub(text, rest + 1)
  resting[2 * i - 1], resting[2 * i] = at, id
  if given[base + 5] then
    extras[#extras + 1] = EXTRA .. id
    extras[#extras + 1] = given[base + 5]
  elseif extra == OWN_EXTRA then
    bare[#bare + 1] = EXTRA .. id
  end
  if unique then freed[#freed + 1] = {unique_field(queue, unique), id} end
  if slots then limited[#limited + 1] = {slots_key(queue, lane), id} end
  if concurrency then limited[#limited + 1] = {keyed_key(queue, lane, concurrency), id} end
  tally[queue] = (tally[queue] or 0) + 1
end
even_when_full()
set_all(states)
set_all(extras)
delete_all(bare)
in_portions('ZREM', LEASES, ids)
for _, pair in ipairs(limited) do call('ZREM', pair[1], pair[2]) end
in_portions('ZADD', finished_key('done'), resting)
for _, pair in ipairs(freed) do
  if call('HGET', UNIQUE, pair[1]) == pair[2] then call('HDEL', UNIQUE, pair[1]) end
end
for queue, jobs in pairs(tally) do call('HINCRBY', COUNTS, 'done:' .. queue, jobs) end
return answer(true, 1)
