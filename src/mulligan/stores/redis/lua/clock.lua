-- Answers the time, and nothing else.
return answer(false)
