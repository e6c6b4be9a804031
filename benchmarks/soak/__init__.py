"""A steady load for a long time: does anything grow that should not? `make soak` runs it."""
