-- What a claim asks for. ARGV[6]: asks as {queue, lane or false, priority, guaranteed, whether by creation, limits, after}; the last two may
-- be missing. ARGV[7]: '1' if a limit is also for jobs without a group. Such a claim is a careful one, and so is one of a queue that has
-- ever had a job with a group.
local asks, queues, paused, grouped, is_careful = {}, {}, {}, {}, ARGV[7] == '1'
for _, queue in ipairs(call('SMEMBERS', prefix .. 'paused')) do paused[queue] = true end
for _, queue in ipairs(call('SMEMBERS', prefix .. 'grouped')) do grouped[queue] = true end
for i, given in ipairs(decode(ARGV[6])) do
  asks[i] = {queue = given[1], lane = given[2], priority = given[3], guaranteed = given[4], fifo = given[5], limits = given[6], after = given[7]}
  queues[given[1]] = true
  is_careful = is_careful or grouped[given[1]]
end
local pick_carefully, charge_taken, sooner -- functions of careful.lua
