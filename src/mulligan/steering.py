"""Steering a running fleet: other settings for a queue, breakers opened and closed by hand. Workers follow within a second."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from mulligan.core.clock import us_to_datetime
from mulligan.core.codec import MESSAGE_CHARS_MAX, check_name, storable_text
from mulligan.core.contract import Note, Store
from mulligan.core.errors import BadSetting, StoreUnavailable, UnknownQueue, shown
from mulligan.core.events import Event
from mulligan.core.ids import new_id
from mulligan.observe.bus import EventBus
from mulligan.policy.breaker import BreakerState, Turned, closed_by_hand, is_held, opened_by_hand, read_state
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.lanes import Strategy
from mulligan.policy.queues import checked_changes, plain_changes, read_changes, write_changes
from mulligan.worker.board import BREAKER_PREFIX, QUEUE_PREFIX, change_by_hand

OPERATOR_CHARS_MAX = 200
_ROUNDS = 20


class QueueChanges(TypedDict, total=False):
    """What `app.configure` takes, for type checkers. Strategies, rates and budgets may be given as texts too."""

    claim: Strategy | str
    concurrency: int | None
    max_inflight_retries: int | None
    key_concurrency: int
    rate: Rate | str | None
    budget: RetryBudget | str | None


class ChangedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is served by other settings than the code of its workers says."""

    queue: str
    settings: dict[str, Any]  # what is changed, as people type it; `app.configure` takes it again
    by: str
    at: datetime  # of the last change


class BreakerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One breaker as people read it."""

    name: str
    state: str  # closed, open, half_open or closing
    since: datetime | None
    until: datetime | None  # when an open one will be tried again; None: an operator opened it
    held_until: datetime | None  # a Retry-After holds everything that depends on it
    manual: bool
    by: str
    reason: str


class Steering:
    """The operators' wishes, written as notes that every worker reads."""

    def __init__(self, store: Store, bus: EventBus) -> None:
        self._store = store
        self._bus = bus

    async def configure(
        self, queue: str, changes: Mapping[str, Any] | None, known: Collection[str] = (), *, by: str = ""
    ) -> dict[str, Any]:
        """Changes settings of a queue for all workers, over those made before; None takes all changes back.

        Returns what is changed now. Where that was so before, nothing is written and nothing told. `known` are queues that need
        neither jobs nor settings in the store to be taken for real ones.
        """
        check_name(queue, "queue")
        wanted = None if changes is None else checked_changes(queue, changes)
        await self._require(queue, known)
        by = storable_text(by, OPERATOR_CHARS_MAX)
        key = QUEUE_PREFIX + queue
        for _ in range(_ROUNDS):
            note = next((one for one in await self._store.notes(key) if one.key == key), None)
            before = _read(note)
            after = {} if wanted is None else {**(before or {}), **wanted}
            if after == before:
                return plain_changes(after)
            mark = new_id(await self._store.now_us())
            written = await self._store.put_note(key, write_changes(queue, after, by=by, mark=mark), 0 if note is None else note.version)
            if written is not None:
                detail = {"settings": plain_changes(after), "by": by}
                await self._tell(Event(kind="QUEUE_CHANGED", at_us=written.updated_at_us, queue=queue, detail=detail))
                return plain_changes(after)
        raise StoreUnavailable(f"the settings of {queue} are written by others all the time; nothing was changed, try again")

    async def changed(self) -> list[ChangedQueue]:
        """What operators have changed, by the names of the queues. A note that cannot be read is left out, as workers leave it."""
        found = []
        for note in await self._store.notes(QUEUE_PREFIX):
            queue = note.key.removeprefix(QUEUE_PREFIX)
            try:
                settings, by = read_changes(queue, note.body)
            except BadSetting:
                continue
            if settings:
                found.append(ChangedQueue(queue=queue, settings=plain_changes(settings), by=by, at=us_to_datetime(note.updated_at_us)))
        return found

    async def open_breaker(self, name: str, *, reason: str = "", by: str = "") -> BreakerStatus:
        """Holds back everything that depends on this downstream, until `close_breaker`."""
        return await self._turn(name, opened_by_hand, reason=reason, by=by)

    async def close_breaker(self, name: str, *, reason: str = "", by: str = "") -> BreakerStatus:
        """Lets everything through again at once, whatever was counted before."""
        return await self._turn(name, closed_by_hand, reason=reason, by=by)

    async def breakers(self) -> list[BreakerStatus]:
        """All breakers that were ever heard of, by name."""
        now_us = await self._store.now_us()
        found = [(note.key.removeprefix(BREAKER_PREFIX), read_state(note.body)) for note in await self._store.notes(BREAKER_PREFIX)]
        return [status_of(name, state, now_us) for name, state in found if state is not None]

    async def _turn(self, name: str, turn: Callable[..., Turned], *, reason: str, by: str) -> BreakerStatus:
        reason, by = storable_text(reason, MESSAGE_CHARS_MAX), storable_text(by, OPERATOR_CHARS_MAX)
        state = await change_by_hand(self._store, self._bus, name, lambda state, now_us: turn(state, now_us, by=by, reason=reason))
        return status_of(name, state, await self._store.now_us())

    async def _require(self, queue: str, known: Collection[str]) -> None:
        """UnknownQueue for a queue that is neither known nor has jobs or settings: most often its name is misspelt."""
        if queue in known:
            return
        noted = [note.key.removeprefix(QUEUE_PREFIX) for note in await self._store.notes(QUEUE_PREFIX)]
        names = sorted({*known, *noted, *(one.queue for one in (await self._store.stats()).queues)})
        if queue not in names:
            raise UnknownQueue(f"no queue is named {shown(queue)}; known: {', '.join(names) or 'none'}")

    async def _tell(self, event: Event) -> None:
        self._bus.publish([event])
        await self._store.record_events([event])


def _read(note: Note | None) -> dict[str, Any] | None:
    """The changed settings a note holds; None if it cannot be read, which is no reason to keep an operator from writing it anew."""
    if note is None:
        return {}
    try:
        return read_changes(note.key.removeprefix(QUEUE_PREFIX), note.body)[0]
    except BadSetting:
        return None


def status_of(name: str, state: BreakerState, now_us: int) -> BreakerStatus:
    """A breaker's state in words."""
    return BreakerStatus(
        name=name,
        state=state.state,
        since=_time(state.since_us),
        until=_time(state.until_us) if state.state == "open" else None,
        held_until=_time(state.held_until_us) if is_held(state, now_us) else None,
        manual=state.manual,
        by=state.by,
        reason=state.reason,
    )


def _time(time_us: int) -> datetime | None:
    return us_to_datetime(time_us) if time_us else None
