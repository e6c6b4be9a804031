-- What every script begins with: the keys, the time, and the answer's head.
-- KEYS[1] is {app}:epoch and KEYS[2] {app}:beat; all other keys begin with the same {app}: and so lie in the same slot.
-- ARGV[1] is the time of a test's clock, or empty: then the server's own clock counts.
if redis.replicate_commands then redis.replicate_commands() end
local call, pack, decode = redis.call, cmsgpack.pack, cmsgpack.unpack
local format, concat = string.format, table.concat
local prefix = string.sub(KEYS[1], 1, -6)
local STATE, BODY, EXTRA, HISTORY = prefix .. 'state:', prefix .. 'body:', prefix .. 'extra:', prefix .. 'history:'
local LEASES, IDS, COUNTS, UNIQUE = prefix .. 'leases', prefix .. 'ids', prefix .. 'counts', prefix .. 'unique'
local PORTION = 1000 -- how many values one command gets; Lua's stack holds a few thousand
local LANES, PRIORITIES = {'fresh', 'retry'}, {2, 1, 0}

local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- A whole number as text: Lua alone would write 1.7e+15.
local function int(number) return format('%.0f', number) end

-- A number as it is packed. Packing is slow, and a batch has few different numbers.
local packed = {}
local function number(value)
  local text = packed[value]
  if not text then
    text = pack(value)
    packed[value] = text
  end
  return text
end

-- The head of every answer. A script that wrote raises the beat, so that a client notices when it ever goes back.
local function answer(wrote, ...)
  local beat = wrote and call('INCR', KEYS[2]) or tonumber(call('GET', KEYS[2]) or '0')
  return {call('GET', KEYS[1]) or '', beat, now, ...}
end

-- A server that is out of memory refuses a script's first write if it needs memory, and nothing is written: so it is with new jobs. What
-- lets work go on and come to an end must not be refused; a write that needs no memory, made first, opens the way for the others.
local function even_when_full() call('UNLINK', prefix .. 'none') end

-- A command with any number of values, in portions that the stack can hold; `portion` must be even where values come in pairs.
local function in_portions(command, key, values)
  local done = 0
  for from = 1, #values, PORTION do
    done = done + call(command, key, unpack(values, from, math.min(from + PORTION - 1, #values)))
  end
  return done
end

-- The values of one kind of key of many jobs (false where there is none), and the keys.
local function get_all(kind, ids)
  local texts, keys, many = {}, {}, #ids
  for i = 1, many do keys[i] = kind .. ids[i] end
  for from = 1, many, PORTION do
    local found = call('MGET', unpack(keys, from, math.min(from + PORTION - 1, many)))
    if many <= PORTION then return found, keys end
    for i = 1, #found do texts[from + i - 1] = found[i] end
  end
  return texts, keys
end

local function set_all(pairs_)
  for from = 1, #pairs_, PORTION do call('MSET', unpack(pairs_, from, math.min(from + PORTION - 1, #pairs_))) end
end

local function delete_all(keys)
  for from = 1, #keys, PORTION do call('UNLINK', unpack(keys, from, math.min(from + PORTION - 1, #keys))) end
end

local function due_key(queue, lane, priority) return prefix .. 'due:' .. queue .. ':' .. lane .. ':' .. int(priority) end
local function ready_key(queue, lane, priority) return prefix .. 'ready:' .. queue .. ':' .. lane .. ':' .. int(priority) end
local function finished_key(status) return prefix .. 'finished:' .. status end

-- A unique key may be any text; the length in front keeps one queue's from looking like another's.
local function unique_field(queue, key) return #queue .. ':' .. queue .. ':' .. key end

-- Processing jobs under a limit, scored by the end of their lease: those claimed under slots, and those with a concurrency key.
local function slots_key(queue, lane) return prefix .. 'slots:' .. queue .. ':' .. lane end
local function keyed_key(queue, lane, key) return prefix .. 'keyed:' .. lane .. ':' .. unique_field(queue, key) end

-- The order of ids is that of their bytes; Lua's own comparison would follow the server's locale.
local function is_before(a, b)
  local shorter, from = math.min(#a, #b), 1
  while from + 7 <= shorter and string.sub(a, from, from + 7) == string.sub(b, from, from + 7) do from = from + 8 end
  for i = from, shorter do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end
