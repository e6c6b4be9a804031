"""mulligan beside other queues: one runner, one small adapter per peer, the same work for all. docs/guide/benchmarks.md tells how."""
