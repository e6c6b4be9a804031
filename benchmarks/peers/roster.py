"""Who is measured: each peer with its store, its adapter, the settings it runs with and what it does not promise."""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """One contender."""

    name: str
    store: str  # postgres, redis or sqlite
    adapter: str  # in adapters/
    needs: str | None  # in needs/: NAME.txt for Python, NAME/package.json for Node; None: the environment of this repository
    settings: str
    promises: str  # what it does not promise, in words for the reader of a table
    share: float = 1.0  # of the work, so that a slow peer takes seconds too; a rate does not depend on it
    arguments: tuple[str, ...] = ()  # handed on to the adapter
    has_bulk: bool = True
    waits_after_failure: bool = False  # its delay cannot be chosen; pauses in which nothing is due are left out of its storm
    python: tuple[int, int] | None = None  # the oldest Python it runs on, where ours may be older

    @property
    def is_node(self) -> bool:
        """Whether it runs on Node."""
        return self.adapter.endswith(".js")


_OURS = "its defaults, 100 jobs at once"
_OUR_PROMISE = "at least once: a job whose worker was killed runs again when its lease has ended"

_ALL = (
    Peer("mulligan-postgres", "postgres", "peer_mulligan.py", None, _OURS, _OUR_PROMISE, share=3),
    Peer(
        "graphile-worker",
        "postgres",
        "peer_graphile_worker.js",
        "graphile-worker",
        "24 jobs at once, local queue of 500, completions and failures batched",
        "a killed worker's jobs, also those it had only fetched, stay locked for four hours; the delay after a failure cannot be chosen",
        share=3,
        waits_after_failure=True,
    ),
    Peer(
        "pgqueuer",
        "postgres",
        "peer_pgqueuer.py",
        "pgqueuer",
        "asyncpg, batches of 100, uvloop, autovacuum tuned by its own command",
        "jobs that ended but are not yet logged run again after a kill, a batch at a time",
    ),
    Peer("mulligan-redis", "redis", "peer_mulligan.py", None, _OURS, _OUR_PROMISE, share=3),
    Peer(
        "bullmq",
        "redis",
        "peer_bullmq.js",
        "bullmq",
        "ioredis, 100 jobs at once, completed jobs removed",
        "a job that stalls twice is failed; stalled jobs are looked for every 30 seconds",
        share=2,
    ),
    Peer(
        "dramatiq",
        "redis",
        "peer_dramatiq.py",
        "dramatiq",
        "8 threads, hiredis",
        "no bulk enqueue; a killed worker's messages come back after its heartbeat has been missing for a minute, by chance",
        share=0.3,
        has_bulk=False,
    ),
    Peer("mulligan-sqlite", "sqlite", "peer_mulligan.py", None, _OURS + ", durability full", _OUR_PROMISE),
)

PEERS = {peer.name: peer for peer in _ALL}
# What `make bench` takes: us, and the fastest there is on each server.
BEST = ("mulligan-postgres", "graphile-worker", "pgqueuer", "mulligan-redis", "bullmq")


def ours(store: str) -> str:
    """The name of mulligan on this store."""
    return f"mulligan-{store}"
