"""Network: what lies between a process and the store. Every call may be refused, delayed, carried out twice, or lose its answer.

A call that was sent is on its way by itself: it may reach the store after its sender was stopped or killed.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal

from mulligan.core.change import Lapsed
from mulligan.core.contract import Listener, Store
from mulligan.core.errors import StoreError, StoreUnavailable
from mulligan.sim.process import Process, SimLoop, current
from mulligan.sim.report import Call, report
from mulligan.sim.watch import Broken, Watch
from mulligan.sim.wire import hears, sends

Fate = Literal["plain", "travels", "refused", "lost", "delayed", "duplicated", "replayed"]
FATES: tuple[Fate, ...] = ("refused", "lost", "delayed", "duplicated", "replayed")
TRAVEL_S = 0.02
# A second execution after the first one may lawfully do more.
ADDS_MORE = frozenset({"renew", "prune", "record_events", "overdue", "get", "notes", "schedules", "now_us", "stats", "levels", "pulse"})


class Network:
    """All connections of one world. `rates` says how often each fault strikes; in calm weather none does."""

    def __init__(self, store: Store, watch: Watch, loop: SimLoop, rng: Random, rates: Mapping[str, float]) -> None:
        self._store = store
        self._watch = watch
        self._loop = loop
        self._rng = rng
        self._outside = contextvars.copy_context()  # of no process: what is on its way outlives its sender
        self.rates = rates
        self._thresholds = _thresholds(rates)
        self.is_calm = False
        self.down_until_s = 0.0
        self.delay_max_s = 0.5
        self.faults: Counter[str] = Counter()
        self.deaf = False  # whether hints are lost
        self.slow_sweeps = True
        self.under_way = 0  # calls and answers that have not arrived

    def outage(self, seconds: float) -> None:
        """The store does not answer anybody for a time."""
        self.faults["outage"] += 1
        self.down_until_s = self._loop.virtual_s + seconds
        self._watch.note(f"outage of {seconds:.3f} s")

    def end_outage(self) -> None:
        """It answers again."""
        self.down_until_s = 0.0

    async def call(self, process: Process | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of a process, with what becomes of it on the way."""
        if process is not None:
            sends(self._watch, process, name, args)
        fate = self._draw(name, args)
        if fate == "plain":
            answer = self._carry_out(process, name, args, kwargs)
        else:
            if fate != "travels":
                self.faults[fate] += 1
                self._watch.note(f"{name} of {'-' if process is None else process.number}: {fate}")
            answer = await self._send(process, name, args, kwargs, fate)
        if process is not None:
            hears(self._watch, process, name, args, answer)
        return answer

    def _draw(self, name: str, args: tuple[Any, ...]) -> Fate:
        if self._loop.virtual_s < self.down_until_s:
            return "refused"
        if self.is_calm:
            return "plain"
        drawn = self._rng.random()
        if name == "settle" and self.slow_sweeps and isinstance(args[0][0].guard, Lapsed) and drawn < 0.4:
            return "delayed"  # what was read as lapsed may have been renewed meanwhile
        for fate, until in self._thresholds:
            if drawn < until:
                return fate
        return "plain" if drawn < 0.75 else "travels"

    def _send(self, process: Process | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], fate: Fate) -> asyncio.Future[Any]:
        rng, answer = self._rng, self._loop.create_future()
        there_s, back_s = rng.random() * TRAVEL_S, rng.random() * TRAVEL_S
        if fate == "delayed":
            there_s += rng.random() * self.delay_max_s
            back_s += rng.random() * self.delay_max_s
        if process is not None and fate != "travels" and name in ("renew", "claim"):
            process.disturbed_s = max(process.disturbed_s, self._loop.virtual_s + there_s + back_s)
        dies_with_sender = rng.random() < 0.5

        def arrive() -> None:
            if process is not None and process.state == "dead" and dies_with_sender:
                return
            if fate == "refused":
                later(back_s, StoreUnavailable("simulated: the store refuses"))
                return
            try:
                result = self._carry_out(process, name, args, kwargs)
                if fate == "duplicated":
                    self._carry_out(process, name, args, kwargs, again=True)
                elif fate == "replayed":
                    self.later(rng.random() * 4.0, lambda: self._replay(process, name, args, kwargs))
            except Broken:
                return
            except Exception as error:  # noqa: BLE001 - it is the store's answer
                later(back_s, error)
                return
            later(back_s, StoreUnavailable("simulated: the answer is lost") if fate == "lost" else result)

        def later(seconds: float, value: Any) -> None:
            self.later(seconds, lambda: _deliver(answer, value))

        self.later(there_s, arrive)
        return answer

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        self.under_way += 1

        def arrives() -> None:
            self.under_way -= 1
            function()

        self._outside.run(self._loop.call_later, seconds, arrives)

    def _replay(self, process: Process | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self._carry_out(process, name, args, kwargs)
        except (Broken, StoreError):
            return

    def _carry_out(self, process: Process | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, again: bool = False) -> Any:
        """What the store does, in one step, and what the watch has to say of it."""
        watch = self._watch
        if watch.broken is not None:
            raise watch.broken
        before = dict(watch.rows) if again and name not in ADDS_MORE else None
        result = self._outside.run(_drive, getattr(self._store, name)(*args, **kwargs))
        report(watch, name, Call(args, kwargs, result, process))
        watch.row_changes()
        if before is not None and not (name == "claim" and not watch.claimed_of(args[0])):
            watch.check("S24", "" if before == watch.rows else f"a second {name} that says the same changes something")
        return result


def _thresholds(rates: Mapping[str, float]) -> list[tuple[Fate, float]]:
    found, total = [], 0.0
    for fate in FATES:
        total += rates.get(fate, 0.0)
        found.append((fate, total))
    return found


def _deliver(answer: asyncio.Future[Any], value: Any) -> None:
    if answer.done():
        return
    if isinstance(value, Exception):
        answer.set_exception(value)
    else:
        answer.set_result(value)


def _drive(call: Any) -> Any:
    """The memory store never waits, so a call of it is one step."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the store waits for something inside a call")


class Link:
    """The store as one process sees it. A Store in everything but name; what passes is up to the network."""

    def __init__(self, network: Network, store: Store, process: Process | None) -> None:
        self._network = network
        self._store = store
        self._process = process
        self.url = store.url
        self.width = store.width

    async def open(self) -> None:
        """The store is open already."""

    async def close(self) -> None:
        """And stays so for the others."""

    async def near(self) -> None:
        """No way past the faults."""

    def listen(self) -> Listener:
        """Hints, some of which are lost."""
        return _HardOfHearing(self._store.listen(), self._network)

    def announce(self) -> None:
        """Hints to everybody."""
        self._store.announce()

    def __getattr__(self, name: str) -> Any:
        network, process = self._network, self._process

        async def call(*args: Any, **kwargs: Any) -> Any:
            assert process is None or current() is process, "a process uses the connection of another one"
            return await network.call(process, name, args, kwargs)

        setattr(self, name, call)
        return call


class _HardOfHearing:
    """A listener that misses hints while the network is deaf: then only polling helps."""

    def __init__(self, inner: Listener, network: Network) -> None:
        self._inner = inner
        self._network = network

    async def wait(self, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while await self._inner.wait(max(0.0, end_s - loop.time())):
            if not self._network.deaf:
                return True
        return False

    def close(self) -> None:
        self._inner.close()
