-- ARGV[2]: the key of an index of groups; ARGV[3]: names in it. Removes those of which no job waits. Answers how many.
local key, groups, gone = ARGV[2], decode(ARGV[3]), {}
local queue, lane, priority = string.match(string.sub(key, #(prefix .. 'groups:') + 1), '^(.*):(%a+):(%-?%d+)$')
for _, group in ipairs(groups) do
  if not queue or call('EXISTS', group_key(queue, lane, tonumber(priority), group)) == 0 then gone[#gone + 1] = group end
end
return answer(false, in_portions('ZREM', key, gone))
