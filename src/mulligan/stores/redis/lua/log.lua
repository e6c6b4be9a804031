-- The event log: a stream of the newest events. All events of one script are one entry (eventlog.py says what is in it), named by the number
-- of the last of them; they are numbered without gaps, and {app}:seq holds the last number there is.
local EVENTS, SEQ, EVENTS_MAX = prefix .. 'events', prefix .. 'seq', 10000
local logged = {}

-- Notes a packed event, with what only the script knows of it.
local function log(event, reason, fence) logged[#logged + 1] = '\147' .. event .. pack(reason, fence) end

-- Appends an entry of so many events; `at` is their time, or 0 where they tell their own.
local function append(entry, many, at)
  local last = call('INCRBY', SEQ, many)
  local oldest = int(math.max(0, last - EVENTS_MAX + 1))
  local added = redis.pcall('XADD', EVENTS, 'MINID', oldest, int(last), 'at', int(at), 'events', entry)
  if type(added) == 'table' then
    -- The number was removed or set back by hand: it goes on behind the newest entry.
    local newest = call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)[1]
    if not newest then call('UNLINK', EVENTS) end -- It was emptied as well.
    last = (newest and tonumber(string.match(newest[1], '^%d+')) or 0) + many
    call('SET', SEQ, int(last))
    call('XADD', EVENTS, int(last), 'at', int(at), 'events', entry)
  end
end

local function write_log()
  if #logged > 0 then append('\221' .. struct.pack('>I4', #logged) .. concat(logged), #logged, now) end
end
