"""The policy: pure functions and values that decide what follows a failure, and who gets the next slot."""
