-- Storing new jobs. Each comes as {id, queue, priority, delay, eta, unique key, group, concurrency key, body}.
local NO_COUNTS = pack(0, 0, 0, 0, 1)
local NEW = pack('pending', 0, 0)
local UNCLAIMED = pack(now, nil, nil, nil, nil, nil, nil, 'fresh', 1, NO_COUNTS, nil, nil, false)
local NOW = pack(now)

-- Lists a new job in the indexes of jobs that wait.
local function enter(waiting, id, queue, priority, group, run_at)
  if not group then return gather(waiting, due_key(queue, 'fresh', priority), run_at, id) end
  gather(waiting, group_key(queue, 'fresh', priority, group), run_at, id)
  gather(waiting, waiting_key(queue, 'fresh', priority), run_at, id)
  gather(waiting, groups_key(queue, 'fresh', priority), '0', group)
end

-- For each job of a list, in order: false where it is stored under its own id, else the id of the job that stands for it.
local function insert_all(jobs)
  local ids, answers, known, owners = {}, {}, {}, {}
  local texts, members, waiting, names, grouped = {}, {}, {}, {}, {}
  for i, job in ipairs(jobs) do ids[i] = job[1] end
  local found, keys = get_all(STATE, ids)
  for i, job in ipairs(jobs) do
    local id, queue, priority, unique, group = job[1], job[2], job[3], job[6], job[7]
    answers[i] = false
    if not found[i] and not known[id] then
      local owner
      if unique then
        local field = unique_field(queue, unique)
        owner = owners[field] or owner_of(queue, unique)
        owners[field] = owner or id
      end
      if owner then
        answers[i] = owner
      else
        known[id] = true
        local run_at = job[5] or now + job[4]
        texts[#texts + 1] = keys[i]
        local due = pack(run_at)
        texts[#texts + 1] = NEW .. due .. UNCLAIMED .. pack(queue, priority) .. NOW .. due .. due .. pack(unique, false, group, job[8])
        texts[#texts + 1] = BODY .. id
        texts[#texts + 1] = job[9]
        members[#members + 1] = '0'
        members[#members + 1] = id
        enter(waiting, id, queue, priority, group, int(run_at))
        if not names[queue] then
          names[queue] = true
          call('SADD', prefix .. 'names', queue)
        end
        if group and not grouped[queue] then
          grouped[queue] = true
          call('SADD', prefix .. 'grouped', queue)
        end
        if unique then call('HSET', UNIQUE, unique_field(queue, unique), id) end
      end
    end
  end
  set_all(texts)
  in_portions('ZADD', IDS, members)
  for key, values in pairs(waiting) do in_portions('ZADD', key, values) end
  return answers, #members > 0
end
