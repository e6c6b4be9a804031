"""The storage contract: one protocol, one conformance suite (tests/conformance), every store.

What every store keeps (each line is a test there):
- Claim takes only pending, due jobs of queues that are not paused; raises fence and attempts by one; no job to two claimers.
- A claim_id that took jobs before returns what is still held under it and claims no more. An empty claim changes nothing.
- Settle applies a change only under its guard; a refusal is a Verdict, and does not disturb the rest of the batch.
- An equal settle_id answers "applied" again. A change to pending of a job with cancel_requested writes cancelled instead.
- Renew by grips only. Overdue lists lapsed leases, it takes nothing over. Prune never removes a live job.
- insert is idempotent on id; at most one live job per (queue, unique_key).
- A claim keeps the limits its asks name, counted at one moment with those of all other claims: slots are jobs under a lease that has
  not ended, so an ended one gives its slot away, and its renewal is refused while there is none left. A token is taken with each start.
- Jobs that have a group wait in a line of their own; the lines of an ask are served in turn, tenant by tenant (core/choosing).
- put_note writes only over the version given (0: there is none yet) and answers None otherwise; a repeat of the write that made the
  present version answers it again.
- restore writes jobs of another store as they were there, with their histories; False for an id that is there already, which stays as
  it is. A live job whose unique key is taken is refused (StoreRejected). Restored jobs are counted by stats like any others.
- put_receipt writes only under a grip that holds, and answers None otherwise. The first receipt of a name stays: a repeat, also of a
  later holder, answers what is there. Receipts outlast settling and requeueing, are restored with their job and removed with it.
- All times come from the store's clock; driver errors surface as StoreError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from mulligan.core.change import Change, Grip, Verdict
from mulligan.core.events import Event
from mulligan.core.figures import Figures
from mulligan.core.job import Job, Lane, NewJob, Status
from mulligan.core.limits import Level, Limit
from mulligan.core.receipt import Receipt
from mulligan.core.schedule import Schedule, Tick

Order = Literal["run_at", "created_at"]
CancelAnswer = Literal["cancelled", "requested", "finished", "missing"]
BudgetMode = Literal["wait", "backoff", "weighted", "fail"]
FIND_LIMIT_MAX = 500
DEPTH_MAX = 1_000


class Inserted(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer to one NewJob. `id` is the job that now stands for it: an earlier one where the unique key was taken."""

    id: str
    created: bool
    at_us: int


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A wish for jobs of one queue, lane and priority; lane None means both (in `created_at` order).

    `guaranteed` jobs are this ask's own share of the claim's total. What asks leave unused is lent to the others
    (core/lending): inside the lane first, then inside the queue, then to all, in the order of the asks.
    `limits` are those of the whole fleet (core/limits), kept by the store inside the claim. `after` says where the turns of the tenants
    of this line begin: behind this text (core/groups), as the last claim's answer told.
    """

    queue: str
    lane: Lane | None
    priority: int
    guaranteed: int
    order: Order = "run_at"
    limits: tuple[Limit, ...] = ()
    after: str = ""


class Signals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the policy may know of the world beyond the job. Comes back with each claim, at most one claim old."""

    now_us: int
    depth: int = 0  # jobs waiting in the queue, counted up to DEPTH_MAX
    oldest_age_us: int = 0  # how long the one that is due longest has waited
    failure_rate: float = 0.0  # of the executions in this queue that ended lately, those that failed
    over_budget: BudgetMode | None = None  # a retry budget this job draws on is spent, and what its owner chose for that case
    stretch: float = 1.0  # how much longer the backoff is then


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a claim in the order in which the asks were served, and when the next pending one of those queues falls due."""

    jobs: list[Job]
    now_us: int
    next_due_us: int | None  # not after now: there may be more to claim at once
    held_back: frozenset[str] = frozenset()  # queues where a limit passed over a due job
    turns: tuple[str, ...] = ()  # where each ask shall begin next time; empty where no ask met a group
    levels: dict[str, int] = {}  # what is left in each bucket the claim looked at, in millionths of a token


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A small text that all processes share, under a key. Written only over the version the writer has read."""

    key: str
    body: str
    version: int
    updated_at_us: int


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """How full a queue is, at a cost that does not grow with it: due jobs counted up to DEPTH_MAX, and since when the oldest is due."""

    queue: str
    depth: int = 0
    oldest_us: int | None = None


class Renewal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The answer for one grip: still held or not, and whether a cancel waits."""

    job_id: str
    fence: int
    held: bool
    cancel_requested: bool = False


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter over jobs; every given field must match. Newest first, paged by id."""

    status: Status | None = None
    queue: str | None = None
    task: str | None = None
    lane: Lane | None = None
    schedule: str | None = None
    tag: str | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One page; `after` continues it, None when there is no more."""

    jobs: list[Job]
    after: str | None


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """The longest running job of a queue."""

    job_id: str
    task: str
    retry_count: int
    is_retry: bool
    since_us: int


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue, counted. pending = ready + later, per lane."""

    queue: str
    fresh_ready: int = 0
    fresh_later: int = 0
    retry_ready: int = 0
    retry_later: int = 0
    processing: int = 0
    stuck: int = 0  # of processing: lease ended
    retries_running: int = 0  # of processing: those of the retry lane, whatever their lease
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    paused: bool = False
    oldest_ready_us: int | None = None  # run_at of the due job that waits longest
    fresh_oldest_us: int | None = None  # the same of the fresh lane
    retry_oldest_us: int | None = None  # and of the retry lane
    next_due_us: int | None = None  # earliest run_at in the future
    current_job: RunningJob | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """All queues that have jobs or settings, by name."""

    now_us: int
    queues: list[QueueStats]


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """The stored settings of a queue."""

    queue: str
    paused: bool
    reason: str = ""
    by: str = ""
    updated_at_us: int = 0


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it last reported itself; written with its renewals."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    running: int
    started_at_us: int
    seen_at_us: int = 0  # written by the store
    unknown_tasks: tuple[str, ...] = ()
    version: str = ""
    stopped: bool = False  # its last word: it ended cleanly
    figures: dict[str, Figures] = {}  # by queue: what it counted in the last ten minutes
    claims: dict[str, str] = {}  # by queue: the strategy it is served by
    limits: dict[str, tuple[Limit, ...]] = {}  # by queue: what its claims keep; under "" what they keep in every queue


class Weakness(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a store keeps less than it was asked to, and what to do about it."""

    what: str
    advice: str


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can keep with the settings it really runs under, in words for people. `mulligan doctor` prints it."""

    durable: bool  # an acknowledged write survives the death of every process
    loss_window: str  # what a crash or a power loss may take
    fail_over: str  # what becomes of acknowledged writes when another server takes over
    clock: str  # whose time it is
    weaknesses: tuple[Weakness, ...] = ()  # where that is less than the URL asks for


class Width(msgspec.Struct, frozen=True):
    """How much a store is best asked for at once, where a worker's settings do not say."""

    ahead: int  # most jobs claimed beyond the free slots
    batch: int  # most outcomes in one write


class Listener(Protocol):
    """One sleeper's ear for wake-up hints. A hint carries nothing; missing one costs a poll interval, never a job."""

    async def wait(self, timeout_s: float) -> bool:
        """True as soon as a hint has come since the last wait; False when the time is over."""
        ...

    def close(self) -> None: ...


class Near(Protocol):
    """The calls a busy worker makes, over connections of its own. Belongs to the event loop it was made on; every Store is one too."""

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed: ...
    async def settle(self, changes: Sequence[Change]) -> list[Verdict]: ...
    async def close(self) -> None: ...


class InsertsNow(Protocol):
    """What a store may have besides, like `insert_in`: an insert that blocks its thread, with the answers of `insert`.

    Callable from any thread that runs no event loop, many at once. `app.sync` takes it where it is, and else crosses to a loop. What it
    enters while it waits for a loop is `waited_for`, where the store has that, too: the handler of a signal that interrupts an insert here
    is refused what would have to wait for that insert.
    """

    def insert_now(self, jobs: Sequence[NewJob]) -> list[Inserted]: ...


class Store(Protocol):
    """What a store does. Every call may be repeated after an unknown outcome. Usable from any event loop and thread."""

    url: str  # without secrets
    width: Width  # what it drains short jobs fastest with

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def now_us(self) -> int: ...

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]: ...
    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed: ...
    async def renew(self, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None = None) -> list[Renewal]: ...
    async def settle(self, changes: Sequence[Change]) -> list[Verdict]: ...
    async def overdue(self, limit: int) -> list[Job]: ...
    async def request_cancel(self, ids: Sequence[str]) -> list[CancelAnswer]: ...

    async def get(self, ids: Sequence[str]) -> list[Job | None]: ...
    async def restore(self, jobs: Sequence[Job], receipts: Mapping[str, Sequence[Receipt]] = {}) -> list[bool]: ...
    async def find(self, query: Query, limit: int, after: str | None = None) -> Found: ...
    async def stats(self) -> Stats: ...
    async def prune(self, status: Status, older_than_us: int, limit: int) -> int: ...
    async def put_receipt(self, grip: Grip, name: str, value_json: str | None) -> Receipt | None: ...
    async def receipts(self, ids: Sequence[str]) -> list[list[Receipt]]: ...

    async def set_queue(self, queue: str, *, paused: bool, reason: str = "", by: str = "") -> QueueState: ...
    async def queue_states(self) -> list[QueueState]: ...

    async def put_schedule(self, schedule: Schedule) -> Schedule: ...
    async def set_schedule_paused(self, name: str, paused: bool) -> bool: ...
    async def remove_schedule(self, name: str) -> bool: ...
    async def schedules(self) -> list[Schedule]: ...
    async def fire(self, ticks: Sequence[Tick]) -> list[bool]: ...

    async def notes(self, prefix: str) -> list[Note]: ...
    async def put_note(self, key: str, body: str, version: int) -> Note | None: ...
    async def levels(self) -> dict[str, Level]: ...
    async def pulse(self, queues: Sequence[str]) -> list[Pulse]: ...

    async def record_events(self, events: Sequence[Event]) -> None: ...
    async def read_events(self, after_seq: int, limit: int) -> list[Event]: ...
    async def workers(self) -> list[WorkerInfo]: ...

    async def promise(self) -> Promise: ...
    async def describe(self) -> dict[str, object]: ...

    async def near(self) -> Near | None:
        """Claims and settles without a detour, for one worker on the running loop; None where there is no detour."""
        ...

    def listen(self) -> Listener: ...
    def announce(self) -> None: ...
