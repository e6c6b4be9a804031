-- ARGV[2]: the name of a hash. Answers its fields and values, flat.
return answer(false, call('HGETALL', prefix .. ARGV[2]))
