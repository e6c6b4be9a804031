"""The loops that run jobs: fetcher, executor, committer, and beside them keeper, sweeper, scheduler and pruner."""
