"""Where the time of a worker goes, job by job: `python -m benchmarks.profile`. What it found is told in docs/design/hot-path.md."""
