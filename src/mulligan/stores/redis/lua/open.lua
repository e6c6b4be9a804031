-- ARGV[2]: a new epoch, ARGV[3]: the version of the layout. Both are set where there is none yet. Answers the version that is there.
local made = call('SETNX', KEYS[1], ARGV[2])
call('SETNX', prefix .. 'schema', ARGV[3])
return answer(made == 1, call('GET', prefix .. 'schema'))
