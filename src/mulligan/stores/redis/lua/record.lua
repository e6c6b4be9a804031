-- ARGV[2]: events as JSON texts, each with its time.
for _, event in ipairs(decode(ARGV[2])) do logged[#logged + 1] = pack(event[1], nil, nil, nil, event[2]) end
write_log()
return answer(#logged > 0)
