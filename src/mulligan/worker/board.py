"""The board: what a fleet shares by notes in the store, as one worker sees it: the breakers of downstreams, and settings of queues.

Outcomes of calls are counted in memory as they end. `sync`, which the worker repeats, reads all notes in one trip, and writes the breakers
for which there is news, each only over the version it has read. Whoever loses such a race reads again and adds its own to what the winner
wrote, so nothing is counted twice or lost. A change is told by the one whose write made it: once in the fleet. A write whose reply was lost
is known by its mark, unless more than MARKS_MAX others came after it; then what it carried is counted once more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mulligan.core.clock import SECOND_US
from mulligan.core.codec import check_name
from mulligan.core.contract import Note, Store
from mulligan.core.errors import BadSetting, StoreError, StoreUnavailable
from mulligan.core.events import Event
from mulligan.core.ids import new_id
from mulligan.core.job import Job
from mulligan.core.limits import Bucket
from mulligan.observe.bus import EventBus
from mulligan.policy.breaker import RETRY_AFTER_MAX_US, BreakerState, Calls, Turn, Turned, is_held, read_state, write_state
from mulligan.policy.budget import RetryBudget
from mulligan.policy.downstream import Downstream

BREAKER_PREFIX = "breaker:"
QUEUE_PREFIX = "queue:"
TRIES_MAX = 4  # of one write in one sync; what could not be written waits for the next one
HAND_TRIES_MAX = 50  # an operator's change is made once, so it tries harder
PRESSING_S, CALM_S = 0.25, 1.0  # pauses between two syncs
LATE_S = 0.01  # a sync for the sake of a certain time comes this much after it, so that it is over by then
MARKS_MAX = 16  # of the last writes of a note, kept in it
WATCHED_MAX = 1_000  # downstreams nobody configured, known from jobs and notes; more of them are not watched
CLAIM_TIMES_MAX = 100  # calls are counted apart by the time of their claim, up to so many times
log = logging.getLogger("mulligan.board")


class _Attempt(NamedTuple):
    """A write that is under way, or whose outcome is not known."""

    mark: str
    body: str
    version: int  # of the note it writes over
    turns: list[Turn]
    at_us: int
    calls: dict[int, tuple[int, int]]
    asked_until_us: int


class _Watch:
    """One downstream: what the store was last seen to say of it, and what this worker has to add."""

    def __init__(self, downstream: Downstream) -> None:
        self.downstream = downstream
        self.key = BREAKER_PREFIX + downstream.name
        self.state = BreakerState()
        self._note: Note | None = None  # that state as it is stored
        self.calls: dict[int, tuple[int, int]] = {}  # by the time of the claim: how many were good, how many bad
        self.asked_until_us = 0  # the latest time until which a Retry-After asked for peace
        self.attempt: _Attempt | None = None
        self.is_being_written = False
        self._is_limited = bool(downstream.lasting_limits())

    def count(self, began_us: int, ok: int, bad: int) -> None:
        """Adds ended calls. Where they are of too many claims, the oldest two are counted as one claim."""
        before = self.calls.get(began_us, (0, 0))
        self.calls[began_us] = (before[0] + ok, before[1] + bad)
        if len(self.calls) > CLAIM_TIMES_MAX:
            oldest, second = sorted(self.calls)[:2]
            self.count(oldest, *self.calls.pop(second))

    def see(self, note: Note | None) -> None:
        """Takes over what the store says."""
        if note == self._note:
            return
        state = BreakerState() if note is None else read_state(note.body)
        if state is None:
            log.warning("the note %s cannot be read, and is taken for that of a closed breaker", self.key)
        self._note, self.state = note, state or BreakerState()

    def seen(self, now_us: int) -> BreakerState:
        """The state as this worker has to obey it: a Retry-After that only it has heard of holds here already."""
        asked_us = self.asked_until_us if self.attempt is None else max(self.asked_until_us, self.attempt.asked_until_us)
        if asked_us <= now_us or (is_held(self.state, now_us) and self.state.held_until_us >= asked_us):
            return self.state
        return replace(self.state, held_until_us=asked_us, held_why="it asked to be left alone")

    def limits(self, now_us: int) -> tuple[Bucket, ...]:
        """What claims have to keep for the jobs that depend on it; nothing is asked where all is as it mostly is."""
        state = self.seen(now_us)
        is_plain = state.state == "closed" and state.held_until_us <= now_us and not self._is_limited
        return () if is_plain else self.downstream.limits(state, now_us)

    def turned(self, now_us: int) -> Turned:
        """What becomes of the state by what this worker has to add."""
        state, turns = self.downstream.passed(self.state, now_us)
        batches = [Calls(ok=ok, bad=bad, began_us=began_us) for began_us, (ok, bad) in sorted(self.calls.items())]
        if self.asked_until_us > now_us:
            batches.append(Calls(began_us=now_us, retry_after_us=self.asked_until_us - now_us))
        for calls in batches:
            state, more = self.downstream.reported(state, calls, now_us)
            turns = turns + more
        return state, turns

    def plan(self, now_us: int, mark: str) -> _Attempt | None:
        """The write that brings the store up to date; None if there is nothing to write."""
        state, turns = self.turned(now_us)
        calls_made, asked_until_us = self.calls, self.asked_until_us
        self.calls, self.asked_until_us = {}, 0
        if state == self.state:
            return None  # what there was to add says nothing any more
        version = 0 if self._note is None else self._note.version
        return _Attempt(mark, write_state(_marked(state, mark)), version, turns, now_us, calls_made, asked_until_us)

    def take_back(self, attempt: _Attempt) -> None:
        """The write was refused: what it carried is to be added to what the winner wrote."""
        for began_us, (ok, bad) in attempt.calls.items():
            self.count(began_us, ok, bad)
        self.asked_until_us = max(self.asked_until_us, attempt.asked_until_us)

    @property
    def is_pressing(self) -> bool:
        """Whether a write has to be repeated, or the load on it grows, so that it matters to hear soon of another worker's failures."""
        return self.attempt is not None or self.downstream.seen(self.state).state == "closing"


class Board:
    """One per worker. `ended` and `refusal` are for the executor, `limits` for the planner, the rest for the worker's loop."""

    def __init__(self, store: Store, bus: EventBus, worker: str, downstreams: Mapping[str, Downstream], now_us: Callable[[], int]) -> None:
        self._store = store
        self._bus = bus
        self._worker = worker
        self._now_us = now_us  # the store's time, as far as this worker can tell
        self._watches = {name: _Watch(downstream) for name, downstream in downstreams.items()}
        self._watched_max = len(downstreams) + WATCHED_MAX
        self._mark = new_id(now_us())[-8:]  # of this board alone: a process may have several under one name
        self._writes = 0
        self._unrecorded: list[Event] = []  # published here, and not yet in the store's log
        self.settings: dict[str, str] = {}  # of queues: what their notes say
        self.on_settings: Callable[[str, str | None], None] = lambda *_: None  # called with each change of these
        self._limited: frozenset[str] = frozenset()  # the buckets that were in force after the last sync
        self.on_turn: Callable[[], None] = lambda: None  # called when a sync finds others in force: whoever sleeps may have work

    # -- Between two syncs, in memory -----------------------------------------------------------------------------------

    def ended(self, downstream: str, *, ok: bool | None, claimed_at_us: int, retry_after_us: int | None = None) -> None:
        """A call to a downstream has ended. Only counted here; ok None: it says nothing of how the downstream is."""
        watch = self._watch(downstream)
        if watch is None:
            return
        if ok is not None and watch.downstream.breaker is not None:
            watch.count(claimed_at_us, int(ok), int(not ok))
        if retry_after_us is not None:
            watch.asked_until_us = max(watch.asked_until_us, self._now_us() + min(retry_after_us, RETRY_AFTER_MAX_US))

    def refusal(self, job: Job, now_us: int) -> str:
        """Why a claimed job must not start after all; empty if it may. Its downstream may have been shut since."""
        watch = self._watches.get(job.depends_on or "")
        return "" if watch is None else watch.downstream.refusal(watch.seen(now_us), job.updated_at_us, now_us)

    def limits(self) -> tuple[Bucket, ...]:
        """What every claim has to keep now, of all downstreams."""
        now_us = self._now_us()
        return tuple(bucket for watch in self._watches.values() for bucket in watch.limits(now_us))

    def budgets(self) -> dict[str, tuple[Bucket, RetryBudget]]:
        """The retry budgets of downstreams, by their names."""
        found = {}
        for name, watch in self._watches.items():
            bucket, budget = watch.downstream.budget_bucket(), watch.downstream.budget
            if bucket is not None and budget is not None:
                found[name] = (bucket, budget)
        return found

    def states(self) -> dict[str, BreakerState]:
        """All downstreams this worker knows of, as they were at the last sync."""
        return {name: watch.state for name, watch in self._watches.items()}

    def has_news(self) -> bool:
        """Whether the next sync should not wait: it would turn a breaker, tell of a Retry-After, or find other limits in force."""
        now_us = self._now_us()
        return self._limited != self._limits_now() or any(watch.turned(now_us)[1] for watch in self._watches.values())

    def has_anything_to_say(self) -> bool:
        """Whether something was counted or told here that is not in the store."""
        return bool(self._unrecorded) or any(watch.attempt or watch.calls or watch.asked_until_us for watch in self._watches.values())

    def pause_s(self) -> float:
        """How long the next sync can wait if there is no news: not beyond the time at which an open breaker is to be tried."""
        now_us = self._now_us()
        pause_s = PRESSING_S if any(watch.is_pressing for watch in self._watches.values()) else CALM_S
        times = (watch.downstream.wakes_at(watch.state, now_us) for watch in self._watches.values())
        return min((pause_s, *((time_us - now_us) / SECOND_US + LATE_S for time_us in times if time_us is not None)))

    def _limits_now(self) -> frozenset[str]:
        return frozenset(bucket.key for bucket in self.limits())

    # -- With the store -------------------------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Reads what others have written, writes what this worker has to add, and tells the changes it has made.

        An error of the store loses nothing: the next sync repeats the write whose outcome is not known, and goes on. What the store
        refuses for good is dropped, so that it does not stand before everything else for ever. Several syncs at once do no harm.
        """
        await self._record()
        self._see(await self._store.notes(""))
        for watch in tuple(self._watches.values()):
            if not watch.is_being_written:
                watch.is_being_written = True
                try:
                    await self._write(watch)
                finally:
                    watch.is_being_written = False
        before, self._limited = self._limited, self._limits_now()
        if self._limited != before:
            self.on_turn()
        await self._record()

    def _see(self, notes: Sequence[Note]) -> None:
        found = {note.key: note for note in notes}
        for key in found:
            if key.startswith(BREAKER_PREFIX):
                self._watch(key.removeprefix(BREAKER_PREFIX))
        for watch in self._watches.values():
            watch.see(found.get(watch.key))
        self._see_settings({key.removeprefix(QUEUE_PREFIX): note.body for key, note in found.items() if key.startswith(QUEUE_PREFIX)})

    def _see_settings(self, settings: dict[str, str]) -> None:
        before, self.settings = self.settings, settings
        for queue in sorted(before.keys() | settings.keys()):
            if before.get(queue) != settings.get(queue):
                try:
                    self.on_settings(queue, settings.get(queue))
                except Exception:  # what one queue cannot use must not keep the others, and the breakers, waiting
                    log.exception("the new settings of queue %s could not be taken over", queue)

    async def _write(self, watch: _Watch) -> None:
        """Writes until the store says what this worker has to say, or the others are too quick for now."""
        for _ in range(TRIES_MAX):
            attempt = watch.attempt or watch.plan(self._now_us(), self._next_mark())
            if attempt is None:
                return
            watch.attempt = attempt  # kept if this raises: only the same write can tell whether it was made
            try:
                note = await self._store.put_note(watch.key, attempt.body, attempt.version)
                if note is None:
                    note = await _read(self._store, watch.key)
            except StoreError as error:
                if error.retryable:
                    raise
                log.error("the note %s cannot be written; what it was to say is dropped: %s", watch.key, error)
                watch.attempt = None
                return
            watch.attempt = None
            watch.see(note)
            if attempt.mark in watch.state.written_by:
                events = [_event(turn, watch.downstream.name, self._worker, attempt.at_us) for turn in attempt.turns]
                self._bus.publish(events)
                self._unrecorded += events
            else:
                watch.take_back(attempt)

    async def _record(self) -> None:
        events, self._unrecorded = self._unrecorded, []
        if not events:
            return
        try:
            await self._store.record_events(events)
        except StoreError as error:
            if error.retryable:
                self._unrecorded = events + self._unrecorded
                raise
            log.error("%d events of downstreams cannot be recorded: %s", len(events), error)

    def _next_mark(self) -> str:
        self._writes += 1
        return f"{self._mark}/{self._writes}"

    def _watch(self, name: str) -> _Watch | None:
        """The watch over a downstream; a new one by default settings. None for what is no name, or one too many."""
        watch = self._watches.get(name)
        if watch is None and len(self._watches) < self._watched_max:
            try:
                watch = self._watches[name] = _Watch(Downstream(name))
            except BadSetting:
                return None
            if len(self._watches) == self._watched_max:
                log.warning("jobs depend on more than %d downstreams; breakers of further ones are not watched here", WATCHED_MAX)
        return watch


async def change_by_hand(store: Store, bus: EventBus, name: str, change: Callable[[BreakerState, int], Turned]) -> BreakerState:
    """What an operator does to a breaker, such as opened_by_hand, written and told; the state that follows."""
    key = BREAKER_PREFIX + check_name(name, "downstream")
    for _ in range(HAND_TRIES_MAX):
        note = await _read(store, key)
        now_us = await store.now_us()
        before = (note and read_state(note.body)) or BreakerState()
        state, turns = change(before, now_us)
        state = _marked(replace(state, written_by=before.written_by), new_id(now_us)[-8:])
        if await store.put_note(key, write_state(state), 0 if note is None else note.version) is not None:
            events = [_event(turn, name, "", now_us) for turn in turns]
            bus.publish(events)
            await store.record_events(events)
            return state
    raise StoreUnavailable(f"the breaker of {name} is being changed by so many others that this change did not get through; try again")


def _marked(state: BreakerState, mark: str) -> BreakerState:
    return replace(state, written_by=(*state.written_by, mark)[-MARKS_MAX:])


async def _read(store: Store, key: str) -> Note | None:
    return next((note for note in await store.notes(key) if note.key == key), None)


def _event(turn: Turn, downstream: str, worker: str, at_us: int) -> Event:
    detail = {"downstream": downstream, "why": turn.why, "until_us": turn.until_us, "by": turn.by}
    return Event(kind=turn.kind, at_us=at_us, worker=worker, detail=detail)
