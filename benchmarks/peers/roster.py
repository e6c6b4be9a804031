"""Who is measured: each peer with its store, its adapter, the settings it runs with and what it does not promise."""

from __future__ import annotations

from typing import Literal, NamedTuple

STORES = ("postgres", "redis", "sqlite", "mongo")
# Who somebody is. A limit is a hand-written batch loop, which is no queue; naive is the same loop without batches.
# Blocking is mulligan from a program without an event loop.
Role = Literal["ours", "watched", "blocking", "peer", "limit", "naive"]
OURS_TOO = ("watched", "blocking")
ONLY_OURS = frozenset({"pair"})


class Tuned(NamedTuple):
    """A number among a peer's settings: what it is measured with, and what a sweep tries in its place."""

    name: str
    used: int
    others: tuple[int, ...]


class Peer(NamedTuple):
    """One contender."""

    name: str
    store: str  # one of STORES
    adapter: str  # in adapters/
    needs: str | None  # in needs/: NAME.txt for Python, NAME/package.json for Node; None: the environment of this repository
    settings: str
    promises: str  # what it does not promise, in words for the reader of a table
    share: float = 1.0  # of the work, so that a slow peer takes seconds too; a rate does not depend on it
    variant: str = ""  # which of several ways its adapter knows
    has_bulk: bool = True
    waits_after_failure: bool = False  # it cannot try again at once; pauses in which nothing is begun are left out of its storm
    python: tuple[int, int] | None = None  # the oldest Python it runs on, where ours may be older
    from_source: tuple[str, ...] = ()  # packages without a wheel, which have to be built
    role: Role = "peer"
    only: frozenset[str] = frozenset()  # the measures it takes part in, where that is not all
    tuned: tuple[Tuned, ...] = ()
    blocks: bool = False  # its enqueue blocks the thread of its caller
    is_durable: bool = True  # what it has enqueued is as safe as what mulligan has enqueued on the same store

    @property
    def is_node(self) -> bool:
        """Whether it runs on Node."""
        return self.adapter.endswith(".js")

    @property
    def is_loop(self) -> bool:
        """Whether it is no queue, but a loop that stores and settles jobs by itself."""
        return self.role in ("limit", "naive")

    def takes(self, measure: str) -> bool:
        """Whether it takes part in a measure."""
        if self.only:
            return measure in self.only
        return self.role == "ours" or measure not in ONLY_OURS


_OURS = "its defaults, 100 jobs at once"
_OUR_PROMISE = "at least once: a job whose worker was killed runs again when its lease has ended"
_WATCHED = _OURS + ", a subscriber to every event, and a middleware around every attempt as tracing has it"
_LIMIT = "no queue: no retries, no lapsed leases, no lanes, no history, no events, no handlers"
_DRAIN = frozenset({"drain"})


def _ours(store: str, settings: str = "", share: float = 1.0) -> Peer:
    return Peer(f"mulligan-{store}", store, "peer_mulligan.py", None, _OURS + settings, _OUR_PROMISE, share=share, role="ours")


def _watched(store: str, share: float = 1.0) -> Peer:
    name = f"mulligan-{store}-watched"
    return Peer(name, store, "peer_mulligan.py", None, _WATCHED, _OUR_PROMISE, share=share, variant="watched", role="watched", only=_DRAIN)


def _blocking(store: str, share: float = 1.0) -> Peer:
    return Peer(
        f"mulligan-{store}-sync",
        store,
        "peer_mulligan.py",
        None,
        "its defaults, and no event loop: `app.sync.enqueue`, in a crowd from as many threads",
        _OUR_PROMISE,
        share=share,
        variant="sync",
        blocks=True,
        role="blocking",
        only=frozenset({"enqueue", "crowd"}),
    )


def _limit(store: str, settings: str, share: float = 1.0) -> Peer:
    return Peer(f"bare-{store}", store, "peer_bare.py", None, settings, _LIMIT, share=share, variant=store, role="limit", only=_DRAIN)


_ALL = (
    _ours("postgres", share=3),
    _watched("postgres", share=3),
    _limit("postgres", "asyncpg, batches of 500, one statement each; a batch is settled while the next is claimed", share=3),
    Peer(
        "graphile-worker",
        "postgres",
        "peer_graphile_worker.js",
        "graphile-worker",
        "24 jobs at once, local queue of 500, completions and failures batched",
        "a killed worker's jobs, also those it had only fetched, stay locked for four hours; "
        "the delay after a failure is e^attempts seconds, and shorter only by a second write that reschedules the job",
        share=3,
        waits_after_failure=True,
        tuned=(
            Tuned("concurrency", 24, (10, 50, 100)),
            Tuned("local_queue", 500, (200, 1_000)),
        ),
    ),
    Peer(
        "pgqueuer",
        "postgres",
        "peer_pgqueuer.py",
        "pgqueuer",
        "asyncpg, batches of 100, uvloop, autovacuum tuned by its own command",
        "jobs that ended but are not yet logged run again after a kill, a batch at a time",
        tuned=(Tuned("batch", 100, (50, 200, 500)),),
    ),
    Peer(
        "procrastinate",
        "postgres",
        "peer_procrastinate.py",
        "procrastinate",
        "psycopg, 20 jobs at once, uvloop, succeeded jobs deleted",
        "a killed worker's jobs stay in the state doing until a task of one's own finds and retries them; a retry waits for the next poll",
        share=0.15,
        waits_after_failure=True,
        tuned=(Tuned("concurrency", 20, (10, 50, 100)),),
    ),
    Peer(
        "oban",
        "postgres",
        "peer_oban.py",
        "oban",
        "psycopg, 100 jobs at once, uvloop",
        "without its paid edition orphans are rescued by age, not by the death of their worker; retries are staged once a second",
        share=0.5,
        waits_after_failure=True,
        python=(3, 12),
        from_source=("erlpack",),
        tuned=(Tuned("concurrency", 100, (20, 50, 200)),),
    ),
    _ours("redis", share=3),
    _blocking("redis", share=3),
    _limit("redis", "redis-py with hiredis, batches of 500, one Lua call each; a batch is settled while the next is claimed", share=3),
    Peer(
        "bullmq",
        "redis",
        "peer_bullmq.js",
        "bullmq",
        "ioredis, 100 jobs at once, completed jobs removed",
        "a job that stalls twice is failed; stalled jobs are looked for every 30 seconds",
        share=2,
        tuned=(Tuned("concurrency", 100, (25, 50, 200, 500)),),
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
        tuned=(Tuned("threads", 8, (4, 16, 32)),),
        blocks=True,
    ),
    Peer(
        "taskiq",
        "redis",
        "peer_taskiq.py",
        "taskiq",
        "list broker, 1,000 tasks at once, parameters not parsed, uvloop, hiredis, no results",
        "taking a job deletes it: a kill loses what runs and what was fetched; no bulk enqueue",
        share=0.5,
        variant="list",
        has_bulk=False,
        tuned=(Tuned("tasks", 1_000, (100, 300)),),
    ),
    Peer(
        "taskiq-stream",
        "redis",
        "peer_taskiq.py",
        "taskiq",
        "stream broker, 1,000 tasks at once, parameters not parsed, uvloop, hiredis, no results",
        "a killed worker's jobs come back after ten minutes; a failed job is acknowledged and sent again, in two steps; no bulk enqueue",
        share=0.5,
        variant="stream",
        has_bulk=False,
        tuned=(Tuned("tasks", 1_000, (100, 300)),),
    ),
    Peer(
        "saq",
        "redis",
        "peer_saq.py",
        "saq",
        "50 jobs at once, uvloop, hiredis, finished jobs not kept",
        "a killed worker's jobs come back by a sweep once a minute, after their time-out; no bulk enqueue",
        share=0.3,
        has_bulk=False,
        tuned=(Tuned("concurrency", 50, (10, 20, 100)),),
    ),
    Peer(
        "huey-redis",
        "redis",
        "peer_huey.py",
        "huey",
        "8 threads, hiredis",
        "taking a job deletes it: a kill loses what runs; no bulk enqueue",
        share=0.3,
        variant="redis",
        has_bulk=False,
        tuned=(Tuned("threads", 8, (2, 4, 16)),),
        blocks=True,
    ),
    Peer(
        "celery",
        "redis",
        "peer_celery.py",
        "celery",
        "10 threads, hiredis, no results, no gossip",
        "acknowledges before the job runs: a kill loses what runs, and what was only fetched comes back after an hour; no bulk enqueue",
        share=0.1,
        variant="early",
        has_bulk=False,
        tuned=(Tuned("threads", 10, (4, 20, 50)),),
        blocks=True,
    ),
    Peer(
        "celery-late",
        "redis",
        "peer_celery.py",
        "celery",
        "10 threads, hiredis, no results, no gossip, acks_late",
        "a killed worker's jobs come back after the visibility time-out of an hour; no bulk enqueue",
        share=0.1,
        variant="late",
        has_bulk=False,
        tuned=(Tuned("threads", 10, (4, 20, 50)),),
        blocks=True,
    ),
    Peer(
        "rq",
        "redis",
        "peer_rq.py",
        "rq",
        "SimpleWorker (no fork for each job), hiredis, results not kept",
        "one job at a time; a killed worker's job is found by its missing heartbeat, minutes later",
        share=0.15,
        blocks=True,
    ),
    _ours("sqlite", ", durability full"),
    _watched("sqlite"),
    _blocking("sqlite"),
    _limit("sqlite", "the sqlite3 module, durability full, batches of 500; one transaction settles a batch and claims the next"),
    Peer(
        "huey",
        "sqlite",
        "peer_huey.py",
        "huey",
        "one thread, which is its default, and fsync=False, which is not",
        "a power cut can lose what was enqueued; taking a job deletes it: a kill loses what runs; no bulk enqueue",
        share=0.5,
        variant="sqlite",
        has_bulk=False,
        is_durable=False,
        tuned=(Tuned("threads", 1, (2, 4)),),
        blocks=True,
    ),
    Peer(
        "huey-fsync",
        "sqlite",
        "peer_huey.py",
        "huey",
        "one thread, fsync=True: as durable as mulligan when it enqueues",
        "taking a job deletes it: a kill loses what runs; no bulk enqueue",
        share=0.5,
        variant="sqlite-fsync",
        has_bulk=False,
        only=frozenset({"enqueue", "crowd", "drain"}),
        tuned=(Tuned("threads", 1, (2, 4)),),
        blocks=True,
    ),
    _ours("mongo", ", majority and journal"),
    _limit("mongo", "pymongo's async client, majority and journal, batches of 500; a batch is settled while the next is claimed"),
    Peer(
        "single-mongo",
        "mongo",
        "peer_bare.py",
        None,
        "pymongo, majority and journal: find_one_and_update claims a job, update_one settles it, and then the next",
        _LIMIT,
        share=0.05,
        variant="mongo-single",
        has_bulk=False,
        role="naive",
        only=_DRAIN,
    ),
)

PEERS = {peer.name: peer for peer in _ALL}
# The fastest there is on each server.
FASTEST = ("graphile-worker", "pgqueuer", "bullmq")
# What `make bench` takes: us, the limits, and those.
BEST = tuple(name for name, peer in PEERS.items() if peer.role != "peer" or name in FASTEST)


def ours(store: str) -> str:
    """The name of mulligan on this store."""
    return f"mulligan-{store}"


def blocking(store: str) -> str:
    """The name of mulligan on this store, called from threads without an event loop; it is not measured on all of them."""
    return f"{ours(store)}-sync"
