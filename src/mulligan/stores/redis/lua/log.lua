-- The event log: a list of the newest events. The last one's number is in {app}:seq, and they are numbered without gaps.
-- Each is a stream: time, run_at, reason, fence (what only the verdict knew; the reader puts it in), and the event as JSON.
local EVENTS, SEQ, EVENTS_MAX = prefix .. 'events', prefix .. 'seq', 10000
local logged = {}

local function log(text, run_at, reason, fence) logged[#logged + 1] = pack(now, run_at, reason, fence, text) end

local function write_log()
  if #logged == 0 then return end
  in_portions('RPUSH', EVENTS, logged)
  call('INCRBY', SEQ, #logged)
  call('LTRIM', EVENTS, -EVENTS_MAX, -1)
end
