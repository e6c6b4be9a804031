-- ARGV[2]: limit. Answers the jobs whose lease has ended, the oldest end first. A lease of a job that is not there is dropped.
local limit, found, dropped, from = tonumber(ARGV[2]), {}, {}, 0
while #found < limit do
  local ids = call('ZRANGEBYSCORE', LEASES, '-inf', int(now), 'LIMIT', from, limit)
  if #ids == 0 then break end
  local texts = get_all(STATE, ids)
  for i, id in ipairs(ids) do
    local row = texts[i] and row_of(id, texts[i])
    if not texts[i] or (row and row.status ~= 'processing') then
      dropped[#dropped + 1] = id
    elseif #found < limit then
      found[#found + 1] = raw_of(id, texts[i], false)
    end
  end
  from = from + #ids
end
if #dropped > 0 then in_portions('ZREM', LEASES, dropped) end
return answer(#dropped > 0, found)
