"""Many claimers on one queue: what they get done together, and how they disturb each other. `python -m benchmarks.claimers` runs it."""
