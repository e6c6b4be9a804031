"""Boards of several workers on one store, and what they and the store say."""

from __future__ import annotations

import asyncio
from typing import Any

from mulligan import Breaker, Downstream
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.events import Event
from mulligan.core.groups import group_of
from mulligan.observe.bus import EventBus
from mulligan.policy.breaker import BreakerState, read_state
from mulligan.worker.board import Board
from tests.builders import us
from tests.faults import FaultyStore
from tests.policy.samples import make_job

BREAKER = Breaker(min_calls=10, open_for=30, ramp=30)


class Member:
    """One worker's board, with the events it has told."""

    def __init__(self, store: Any, clock: ManualClock, name: str = "w1", *downstreams: Downstream) -> None:
        self.clock = clock
        self.bus = EventBus()
        self.told: list[Event] = []
        self.bus.subscribe(self.told.append)
        given = downstreams or (Downstream("d", breaker=BREAKER),)
        self.board = Board(store, self.bus, name, {downstream.name: downstream for downstream in given}, clock.now_us)

    def ended(self, ok: int = 0, bad: int = 0, *, on: str = "d", began_us: int | None = None, retry_after_s: float | None = None) -> None:
        """So many calls have ended, of jobs claimed just now unless told otherwise."""
        retry_after_us = None if retry_after_s is None else us(retry_after_s)
        for number in range(ok + bad):
            claimed_at_us = self.clock.now_us() if began_us is None else began_us
            self.board.ended(on, ok=number < ok, claimed_at_us=claimed_at_us, retry_after_us=retry_after_us)

    @property
    def kinds(self) -> list[str]:
        """What it has told."""
        return [event.kind for event in self.told]

    def phase(self, name: str = "d") -> str:
        """The state of a breaker as this worker sees it."""
        return self.board.states()[name].state

    def refusal(self, *, on: str = "d", began_us: int | None = None) -> str:
        """Why a claimed job that depends on it must not start."""
        claimed_at_us = self.clock.now_us() if began_us is None else began_us
        return self.board.refusal(make_job(group=group_of(None, on, None, None), updated_at_us=claimed_at_us), self.clock.now_us())


class SlowStore(FaultyStore):
    """A store whose first put_note waits until it is told to go on."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        target = super().__getattr__(name)
        if name != "put_note":
            return target

        async def put_note(*args: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                await self.go_on.wait()
            return await target(*args)

        return put_note


async def stored(store: Store, name: str = "d") -> BreakerState:
    """What the store says of a breaker."""
    [note] = [note for note in await store.notes("breaker:") if note.key == f"breaker:{name}"]
    state = read_state(note.body)
    assert state is not None
    return state


def counted(state: BreakerState) -> tuple[int, int]:
    """Good and bad calls in its window."""
    return sum(slot.ok for slot in state.calls), sum(slot.bad for slot in state.calls)
