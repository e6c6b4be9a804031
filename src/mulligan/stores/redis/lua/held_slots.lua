-- How many slots are taken: processing jobs under a lease that has not ended, of a queue and lane (false: both). With a key those that have
-- this concurrency key, without one those that were claimed under slots.
local function count_held(queue, lane, key)
  local held = 0
  for _, one in ipairs(lane and {lane} or LANES) do
    held = held + call('ZCOUNT', key and keyed_key(queue, one, key) or slots_key(queue, one), '(' .. int(now), '+inf')
  end
  return held
end
