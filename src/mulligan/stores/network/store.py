"""The part of a store that is the same for every server: its life, its deadlines, what is repeated, and its hints.

A subclass says how to connect and disconnect, how its driver's errors translate, and how it hears hints; its calls go through `_call`.
new → open → closed, and open again. Usable from any event loop and any thread of the process that opened it; a forked child opens anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from mulligan.core.clock import Clock, system_rng
from mulligan.core.contract import Inserted, Near, Width
from mulligan.core.errors import BadSetting, IllegalMove, MulliganError, StoreError, StoreUnavailable
from mulligan.core.job import NewJob
from mulligan.stores.gather import GATHER_MAX
from mulligan.stores.listener import LocalListener
from mulligan.stores.network.hints import Hints
from mulligan.stores.network.home import Home
from mulligan.stores.network.inserts import Direct, LoopInserts

T = TypeVar("T")
OPENING_TIMES = 3  # so many deadlines long may opening take: it may have to migrate, or to wait for another that does
# No driver raises these for what a server or a network does: they are mistakes in a program, and must not be taken for an outage.
BUGS = (TypeError, AttributeError, LookupError, NameError, AssertionError, NotImplementedError)
REPEATS = 3  # of a call whose connection broke, before the caller is told
END_S = 1.0
SPREAD_S = 5.0
LATE_S = 0.5  # a timer that fires so late was held up
_JUST_BEFORE_S = 0.001  # so that it is asked before the time is over
REPEAT_WAIT_S = 0.2  # at most so long, times the number of failures, before each of them


class NetworkStore(ABC):
    """A store behind a network; see the module. `url` has no secrets, `where` names the server in errors."""

    width = Width(ahead=2_000, batch=1_000)
    inserts_at_once = 1  # connections of a loop that goes on inserting

    def __init__(self, url: str, where: str, *, clock: Clock | None, timeout_s: float) -> None:
        self.url = url
        self._where = where
        self._clock = clock
        self._timeout_s = timeout_s
        self._rng = system_rng()
        self._door = threading.Lock()
        self._session: _Session | None = None
        self._ending: Future[None] | None = None  # while a close is under way
        self._left_behind: list[object] = []  # of the process this one was forked from; kept so that nothing closes them here
        self._inserts: dict[asyncio.AbstractEventLoop, LoopInserts] = {}

    # -- What a store of a kind says ----------------------------------------------------------------------------------

    @abstractmethod
    async def _connect(self) -> None:
        """Makes ready for calls: reaches the server, checks its version and settings, brings the schema up to date. On the home loop.

        Called on a store that is open already, it must change nothing.
        """

    @abstractmethod
    async def _disconnect(self) -> None:
        """Lets go of all connections. On the home loop; also after a `_connect` that failed half-way."""

    @abstractmethod
    def _abandon(self) -> list[object]:
        """In a forked child: hands out everything that must not be touched here, and forgets it, without closing anything."""

    @abstractmethod
    def _translated(self, problem: Exception) -> MulliganError:
        """The error to raise instead of a driver's. StoreUnavailable where a repeat may help."""

    @abstractmethod
    async def _subscribe(self, heard: Callable[[], None]) -> None:
        """Hears hints until the connection breaks; see Hints. Notices a dead connection within fifteen seconds."""

    @abstractmethod
    async def _spread(self) -> None:
        """Sends a hint to every process. Errors are ignored: a hint is only a hint."""

    @abstractmethod
    async def _insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """The insert itself, on the home loop."""

    # -- Life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Makes the store usable. Opening an open store changes nothing."""
        await self._closed()
        with self._door:
            session = self._session
            if session is None:
                session = self._session = _Session(self)
        try:
            await session.home.run(lambda: self._open_once(session))
        except BaseException:
            if not session.opened:
                await self._end(session)
            raise

    async def _open_once(self, session: _Session) -> None:
        async with session.opening:  # several may ask at once
            if not session.opened:
                await self._deadline(self._connect(), self._timeout_s * OPENING_TIMES)
                session.hints.begin()
                session.opened = True

    async def close(self) -> None:
        """Ends all use, after what is under way. Closing a closed store changes nothing."""
        await self._closed()
        session = self._session
        if session is not None:
            await self._end(session)

    async def _closed(self) -> None:
        """Waits for the end of a close that is under way."""
        with self._door:
            self._notice_fork()
            ending = self._ending
        if ending is not None:
            await asyncio.wrap_future(ending)

    def _notice_fork(self) -> None:
        """What the parent opened stays the parent's: it is kept here, untouched, and forgotten."""
        if self._session is not None and not self._session.home.is_of_this_process:
            self._left_behind += [self._session, self._inserts, *self._abandon()]
            self._session = self._ending = None
            self._inserts = {}

    async def _end(self, session: _Session) -> None:
        with self._door:
            if self._session is not session:
                return
            self._session = None
            ending = self._ending = Future()
            ending.set_running_or_notify_cancel()  # else one who waits for it and is cancelled would cancel it for all
        try:
            await self._close_inserts()
            await session.home.run(lambda: self._let_go(session))
            session.ended.set()
            await asyncio.get_running_loop().run_in_executor(None, self._shut, session)
        finally:
            self._ending = None
            ending.set_result(None)

    def _shut(self, session: _Session) -> None:
        self._end_blocking()
        session.home.shutdown()

    def _end_blocking(self) -> None:  # noqa: B027 - nothing, unless a store says otherwise
        """Lets go of the connections of a driver that blocks, where a store has one, after what is under way there."""

    async def _let_go(self, session: _Session) -> None:
        session.opened = False
        await session.home.others_done(self._timeout_s)  # whoever waits for an answer gets it
        await session.hints.end()
        await session.spreader.end()
        with contextlib.suppress(StoreError):  # a server that does not answer cannot be taken leave of
            await self._deadline(self._disconnect(), self._timeout_s)

    def _opened(self) -> _Session:
        session = self._session
        if session is not None:
            session.home.check_process()
        if session is None or not session.opened:
            raise IllegalMove("this store is not open: await store.open() first; a closed store must be opened again")
        return session

    # -- Calls --------------------------------------------------------------------------------------------------------

    async def _call(self, begin: Callable[[], Coroutine[Any, Any, T]], *, repeat: bool = True) -> T:
        """Runs a call on the home loop, within its deadline. One whose connection broke is repeated, if its outcome may be unknown
        without harm: after a server's restart every pooled connection is dead, and nobody should have to hear of it."""
        return await self._opened().home.run(lambda: self._attempts(begin, REPEATS if repeat else 0))

    async def _attempts(self, begin: Callable[[], Coroutine[Any, Any, T]], repeats: int) -> T:
        failures = 0
        while True:
            try:
                return await self._deadline(begin(), self._timeout_s)
            except (BadSetting, StoreUnavailable) as problem:
                failures += 1
                pause_s = self._pause_s(problem, failures, repeats)
            await asyncio.sleep(pause_s)

    def _pause_s(self, problem: MulliganError, failures: int, repeats: int) -> float:
        """How long to wait before the call is repeated; raises what its caller gets where it is not."""
        if isinstance(problem, BadSetting):
            # The store was open, so the setting was right then (a password was changed, a right withdrawn): not the call's fault.
            raise StoreUnavailable(str(problem)) from problem
        if isinstance(problem, Silence) or failures > repeats:
            raise problem
        return self._rng.uniform(0, REPEAT_WAIT_S * failures)

    def _call_now(self, work: Callable[[], T]) -> T:
        """A call over a driver that blocks, on the caller's own thread. The driver raises TimeoutError where the server is silent."""
        failures = 0
        while True:
            session = self._opened()
            try:
                return work()
            except BUGS:
                raise
            except Exception as problem:
                ours = self._in_words(problem)
                if not isinstance(ours, (BadSetting, StoreUnavailable)):
                    raise ours from problem
                failures += 1
                pause_s = self._pause_s(ours, failures, REPEATS)
            session.ended.wait(pause_s)

    def _in_words(self, problem: Exception) -> MulliganError:
        if isinstance(problem, MulliganError):
            return problem
        return self._silence(self._timeout_s) if isinstance(problem, TimeoutError) else self._translated(problem)

    def _silence(self, seconds: float) -> Silence:
        return Silence(f"{self._where} did not answer within {seconds:g} s; it may be overloaded, or the network may be cut")

    async def _call_here(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same on the caller's own loop, for connections that belong to it."""
        self._opened()
        return await self._attempts(begin, REPEATS)

    async def near(self) -> Near | None:
        """Nothing, unless a store says otherwise: the store's own thread is near enough."""
        return None

    async def _deadline(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """The work's answer, or an error of ours."""
        try:
            async with asyncio.timeout(seconds) as limit:
                watch = _put_off_if_late(limit)
                try:
                    return await work
                finally:
                    watch.cancel()
        except TimeoutError:
            raise self._silence(seconds) from None
        except (MulliganError, *BUGS):
            raise
        except Exception as problem:
            raise self._translated(problem) from problem

    def _now_us(self) -> int | None:
        """The time of a test's clock; None where the server's own clock counts."""
        return None if self._clock is None else self._clock.now_us()

    # -- Inserting, and hints -----------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """Stores new jobs; see Inserted for what a known id or a taken unique key answers."""
        self._opened()
        if not jobs:
            return []
        return await (self._insert_now(jobs) if len(jobs) > GATHER_MAX else self._loop_inserts().insert(jobs))

    async def _insert_now(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        answers = await self._call(lambda: self._insert_and_tell(jobs))
        self.hint_here()
        return answers

    async def _insert_and_tell(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        answers = await self._insert(jobs)
        session = self._session
        if session is not None:
            session.spreader.ask()  # here, on the home loop, to which announce() would have to cross once more
        return answers

    async def _insert_here(self, begin: Callable[[], Coroutine[Any, Any, list[Inserted]]]) -> list[Inserted]:
        """An insert over a connection of the running loop."""
        answers = await self._call_here(begin)
        self.announce()
        return answers

    def _direct(self) -> Direct | None:
        """Nothing, unless a store says otherwise: all inserts go through its thread."""
        return None

    def _loop_inserts(self) -> LoopInserts:
        loop = asyncio.get_running_loop()
        with self._door:
            inserts = self._inserts.get(loop)
            if inserts is None:
                for ended in [one for one in self._inserts if one.is_closed()]:
                    del self._inserts[ended]
                inserts = self._inserts[loop] = LoopInserts(self._insert_now, self._direct, self.inserts_at_once)
            return inserts

    async def _close_inserts(self) -> None:
        """Lets go of the connections that belong to callers' loops."""
        with self._door:
            found, self._inserts = self._inserts, {}
        for loop, inserts in found.items():
            if loop is asyncio.get_running_loop():
                await inserts.close()
            elif loop.is_running():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(END_S):
                        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(inserts.close(), loop))

    def listen(self) -> LocalListener:
        """A new ear for wake-ups; close it when done."""
        return self._opened().hints.listen()

    @property
    def is_spreading(self) -> bool:
        """Whether hints are being sent to other processes, or are going to be. Like what follows it also answers while the store is being
        closed: what is under way then has its answer, and hints are only hints."""
        session = self._session
        return session is not None and session.spreader.is_busy

    def hint_here(self) -> None:
        """Hints to the listeners of this process; the others have heard already."""
        session = self._session
        if session is not None:
            session.hints.hint()

    def announce(self) -> None:
        """Hints to every listener, of this process and of others, that there may be work. Sent at most once at a time."""
        session = self._session
        if session is not None and session.opened and session.home.is_of_this_process:
            session.hints.hint()
            if not session.spreader.is_asked:  # else the hint that is to go out next comes after what is announced here
                session.spreader.is_asked = True
                session.home.soon(session.spreader.ask)


def _put_off_if_late(limit: asyncio.Timeout) -> asyncio.TimerHandle:
    """Gives a call more time if the loop itself was held up, by a handler that computes say: the answer may be there, unread."""
    loop, when = asyncio.get_running_loop(), limit.when()
    assert when is not None

    def check() -> None:
        if loop.time() - when > LATE_S:
            limit.reschedule(loop.time() + LATE_S)

    return loop.call_at(when - _JUST_BEFORE_S, check)


class _Session:
    """What a store has between open and close."""

    def __init__(self, store: NetworkStore) -> None:
        self.home = Home(f"mulligan-{type(store).__name__}")
        self.hints = Hints(store._subscribe)  # noqa: SLF001 - the store's own other half
        self.spreader = Spreader(store._spread)  # noqa: SLF001
        self.opening = asyncio.Lock()  # of the home loop
        self.opened = False
        self.ended = threading.Event()  # ends the pauses of threads that block


class Silence(StoreUnavailable):
    """The server did not answer in time. Not repeated by the store itself: the caller has waited long enough."""


class Spreader:
    """Sends hints one at a time: idle → sending (further asks are remembered as one) → idle. Touched by the home loop only,
    but for `is_asked`, which anybody may set who then crosses to it with `ask`."""

    def __init__(self, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self.is_asked = False  # a hint is going to be sent
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a hint is being sent, or is going to be."""
        return self.is_asked or self._task is not None

    def ask(self) -> None:
        """Wishes for a hint to go out."""
        self.is_asked = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def end(self) -> None:
        """Ends what is being sent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=END_S)

    async def _work(self) -> None:
        try:
            while self.is_asked:
                self.is_asked = False
                async with asyncio.timeout(SPREAD_S):  # a hint into a dead connection must not hold up those after it
                    await self._send()
        except Exception:  # noqa: BLE001, S110 - whatever a driver raises, a hint is only a hint
            pass
        finally:
            self.is_asked = False
            self._task = None
