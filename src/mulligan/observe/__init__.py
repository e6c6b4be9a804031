"""What is seen from outside: the event bus and its subscribers (log lines, metrics, alarms)."""
