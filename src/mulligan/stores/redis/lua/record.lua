-- ARGV[2]: an entry of events that tell their own times; ARGV[3]: how many they are.
append(ARGV[2], tonumber(ARGV[3]), 0)
return answer(true)
