-- Storing new jobs. Each comes as {kind, id, body}: the place of its kind among the kinds, which are what jobs have in common, as
-- {queue, priority, delay, eta, unique key, group, concurrency key}. Mostly all jobs of a call are of one kind.
local NO_COUNTS = pack(0, 0, 0, 0, 1)
local NEW = pack('pending', 0, 0)
local UNCLAIMED = pack(now, nil, nil, nil, nil, nil, nil, 'fresh', 1, NO_COUNTS, nil, nil, 0)
local NOW = pack(now)

-- What is the same for all jobs of a kind; the state of a job does not name it, so that is the whole text.
local function mold_of(kind)
  local queue, priority, unique, group = kind[1], kind[2], kind[5], kind[6]
  local run_at = kind[4] or now + kind[3]
  local due = pack(run_at)
  local state = NEW .. due .. UNCLAIMED .. due .. pack(queue, priority) .. NOW .. due .. pack(unique, false, group, kind[7], nil)
  return {queue = queue, priority = priority, unique = unique, group = group, score = int(run_at), state = state}
end

-- The list of what an index gets.
local function list_of(waiting, key)
  local list = waiting[key] or {}
  waiting[key] = list
  return list
end

-- Once there is a job of a kind: the lists of the indexes of jobs that wait, and the names of the group and, among those `named`, of the queue.
local function begin(mold, waiting, named)
  local queue, priority, group = mold.queue, mold.priority, mold.group
  named.names[queue] = true
  if group then
    mold.lists = {list_of(waiting, group_key(queue, 'fresh', priority, group)), list_of(waiting, waiting_key(queue, 'fresh', priority))}
    gather(waiting, groups_key(queue, 'fresh', priority), '0', group)
    named.grouped[queue] = true
  else
    mold.lists = {list_of(waiting, due_key(queue, 'fresh', priority))}
  end
end

-- For each job of a list, in order: false where it is stored under its own id, else the id of the job that stands for it.
local function insert_all(kinds, jobs)
  local ids, answers, known, owners, molds = {}, {}, {}, {}, {}
  local texts, members, waiting, named, written = {}, {}, {}, {names = {}, grouped = {}}, 0
  for i, kind in ipairs(kinds) do molds[i] = mold_of(kind) end
  for i, job in ipairs(jobs) do ids[i] = job[2] end
  local found, keys = get_all(STATE, ids)
  for i, job in ipairs(jobs) do
    local mold, id = molds[job[1]], job[2]
    answers[i] = false
    if not found[i] and not known[id] then
      local unique, owner = mold.unique, nil
      if unique then
        local field = unique_field(mold.queue, unique)
        owner = owners[field] or owner_of(mold.queue, unique)
        owners[field] = owner or id
      end
      if owner then
        answers[i] = owner
      else
        known[id] = true
        texts[4 * written + 1], texts[4 * written + 2] = keys[i], mold.state
        texts[4 * written + 3], texts[4 * written + 4] = BODY .. id, job[3]
        members[2 * written + 1], members[2 * written + 2] = '0', id
        written = written + 1
        if not mold.lists then begin(mold, waiting, named) end
        for _, list in ipairs(mold.lists) do
          local last = #list
          list[last + 1], list[last + 2] = mold.score, id
        end
        if unique then call('HSET', UNIQUE, unique_field(mold.queue, unique), id) end
      end
    end
  end
  set_all(texts)
  for set, queues in pairs(named) do
    for queue in pairs(queues) do call('SADD', prefix .. set, queue) end
  end
  in_portions('ZADD', IDS, members)
  for key, values in pairs(waiting) do in_portions('ZADD', key, values) end
  return answers, written > 0
end
