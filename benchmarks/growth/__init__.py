"""What calls cost as a store fills, how many bytes a job takes, and bloat. `python -m benchmarks.growth` runs it."""
