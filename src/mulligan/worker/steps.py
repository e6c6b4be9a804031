"""Steps of a handler that a rerun skips: `ctx.once`.

The effect of a step and its receipt are two writes. A crash between them repeats the step; docs/guide/idempotency.md says what to do.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from mulligan.core.codec import check_name
from mulligan.core.errors import BadPayload, IllegalMove, StoreError
from mulligan.core.job import Job
from mulligan.core.receipt import RECEIPTS_BYTES_BEFORE, RECEIPTS_MAX, Receipt, encode_receipt, kept_bytes, too_large, too_many
from mulligan.worker.receipts import ReceiptBook

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
LAST_WRITE_S = 2.0  # for the receipt of a step that is done when its run is told to stop; less than a stopped handler gets


class Steps:
    """The steps of one run. Used on the loop of its worker only."""

    def __init__(self, job: Job, book: ReceiptBook) -> None:
        self.book = book
        self._job = job
        # Every claim raises the fence, so nobody has run a job of the first fence before, and there is nothing to read.
        self._known: dict[str, Receipt] | None = None if job.fence > 1 else {}
        self._under_way: set[str] = set()
        self._unwritten: dict[str, str | None] = {}  # values of steps that are done, until the store has them
        self._sizes: dict[str, int] = {}  # of the known and of the unwritten ones
        self._waiting: set[asyncio.Task[Any]] = set()  # what threads wait for

    async def begin(self, name: str) -> Receipt | None:
        """The step's receipt; None if the step is to be done now: then `end` or `abandon` must follow."""
        if asyncio.get_running_loop() is not self.book.loop:
            raise IllegalMove(f"step {name!r}: this is not the loop its job is held on; a sync handler calls ctx.sync.once, without a loop")
        if name in self._under_way:
            raise IllegalMove(f"step {name!r} is under way in this run; give each step a name of its own")
        self._under_way.add(name)
        receipt = None
        try:
            known = await self._receipts()
            receipt = known.get(name)
            if receipt is None and name in self._unwritten:
                receipt = await self._write(name)
            elif receipt is None:
                self._require_room(known)
        except BaseException:
            self._under_way.discard(name)
            raise
        if receipt is not None:
            self._under_way.discard(name)
        return receipt

    async def end(self, name: str, value: Any) -> Receipt:
        """Stores the receipt of a step that is done; the one that is stored, if another was first."""
        try:
            self._unwritten[name] = text = encode_receipt(name, value)
            self._sizes[name] = kept_bytes(name, text)
            return await self._write(name)
        except (BadPayload, StoreError) as problem:
            raise self.book.unusable(problem) from problem
        finally:
            self._under_way.discard(name)

    def abandon(self, name: str) -> None:
        """A step that failed leaves no receipt, and may be begun again."""
        self._under_way.discard(name)

    def value_of(self, receipt: Receipt) -> Any:
        """What a receipt says."""
        try:
            return receipt.value
        except BadPayload as problem:
            raise self.book.unusable(problem) from problem

    async def watched(self, work: Awaitable[T], *, is_late: bool = False) -> T:
        """Work that a thread waits for; `stop` cancels it, and has done so already if it is late."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting.add(task)
        if is_late:
            self.book.loop.call_soon(self._let_go, task)  # when it waits: what it is to write has its last moment then
        try:
            return await work
        finally:
            self._waiting.discard(task)

    def stop(self) -> None:
        """Lets threads go that wait for the store: their run should stop."""
        for task in self._waiting - {asyncio.current_task()}:  # one that found out itself has its own error to tell
            self._let_go(task)

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        if task in self._waiting:
            self._waiting.discard(task)  # once is enough, and twice would cut a last write short
            task.cancel()

    def _require_room(self, known: Mapping[str, Receipt]) -> None:
        """Refuses a step whose receipt might be refused when it is too late. The size of those under way is not known yet: many large ones
        beside each other may still find no room."""
        if len(known.keys() | self._under_way | self._unwritten.keys()) > RECEIPTS_MAX:
            raise too_many(self._job.id)
        if sum(self._sizes.values()) > RECEIPTS_BYTES_BEFORE:
            raise too_large(self._job.id)

    async def _receipts(self) -> dict[str, Receipt]:
        if self._known is None:
            found = await self.book.read(self._job)
            if self._known is None:  # else another step was quicker, and may have added to it
                self._known = found
                self._sizes |= {receipt.name: kept_bytes(receipt.name, receipt.value_json) for receipt in found.values()}
        return self._known

    async def _write(self, name: str) -> Receipt:
        writing = asyncio.ensure_future(self.book.put(self._job, name, self._unwritten[name]))
        try:
            receipt = await asyncio.shield(writing)
        except asyncio.CancelledError:
            await self._finish(writing, name)
            raise
        if receipt is None:
            raise self.book.refused(self._job, name)
        (await self._receipts())[name] = receipt
        self._sizes[name] = kept_bytes(name, receipt.value_json)
        del self._unwritten[name]
        return receipt

    async def _finish(self, writing: asyncio.Future[Receipt | None], name: str) -> None:
        """Gives a write a moment more although its run is told to stop, because what it notes has happened."""
        try:
            await asyncio.wait({writing}, timeout=LAST_WRITE_S)
        finally:
            is_over = not writing.cancel() and not writing.cancelled()
            if is_over and writing.exception() is None and writing.result() is None:
                self.book.refused(self._job, name)


class StepValue:
    """What both kinds of steps show of themselves."""

    def __init__(self, name: str) -> None:
        self._name = check_name(name, "step")
        self._done = False
        self._value: Any = None

    @property
    def done(self) -> bool:
        """Whether an earlier run, or an earlier call in this one, has done it."""
        return self._done

    @property
    def value(self) -> Any:
        """What the step returned. Set it inside the block if the step is not done yet."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if self._done:
            raise IllegalMove(f"step {self._name!r} is done, and the value it has stays")
        self._value = value


class Step(StepValue):
    """One step in place: `async with ctx.once("charge") as step`. Its value is stored when the block ends without an error."""

    def __init__(self, name: str, steps: Steps | None) -> None:
        super().__init__(name)
        self._steps = steps  # None: called without a queue, so that there is nothing to remember

    async def __aenter__(self) -> Step:
        if self._steps is not None:
            receipt = await self._steps.begin(self._name)
            if receipt is not None:
                self._value = self._steps.value_of(receipt)
                self._done = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._steps is None or self._done:
            return
        if error is not None:
            self._steps.abandon(self._name)
        else:
            self._value = self._steps.value_of(await self._steps.end(self._name, self._value))

    async def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The step as a call."""
        async with self:
            if not self._done:
                value = function(*args, **kwargs)
                self._value = await value if inspect.isawaitable(value) else value
        return self._value


class Once:
    """Gives its heirs the method `once`."""

    __slots__ = ()

    def _step(self, name: str) -> Step:
        raise NotImplementedError

    @overload
    def once(self, name: str, /) -> Step: ...
    @overload
    def once(self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    @overload
    def once(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    def once(self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
        """A step that a rerun of this job skips: `await once("charge", charge_card, 42)`, or in place `async with once("charge") as step`.

        If the job has a receipt of that name, its value is returned and nothing is called. Otherwise the function is called, and what it
        returns is stored as the receipt, which takes plain JSON, and returned. Receipts stay with the job, also when it is requeued.
        """
        step = self._step(name)
        return step if function is None else step.run(function, args, kwargs)
