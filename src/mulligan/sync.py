"""The same app for code without an event loop: scripts, Flask, Django. One loop in one background thread; no second registry."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from mulligan.admin import Status
from mulligan.core.contract import CancelAnswer, Inserted, QueueState
from mulligan.core.errors import IllegalMove
from mulligan.core.job import Job, NewJob
from mulligan.core.schedule import Schedule
from mulligan.core.waiting import Waiting
from mulligan.enqueueing import batches, published, put_schedule, wanted
from mulligan.handle import Handle, ScheduleHandle
from mulligan.joining import insert_in_now
from mulligan.lease import Lease
from mulligan.opening import OpenOnce
from mulligan.request import check_jobs
from mulligan.steering import BreakerStatus, ChangedQueue, QueueChanges

if TYPE_CHECKING:
    from mulligan.app import Mulligan
    from mulligan.task import TaskCall

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
InsertNow = Callable[[Sequence[NewJob]], list[Inserted]]


class LoopThread:
    """An event loop in a daemon thread, started when first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine on the background loop and waits for it."""
        try:
            check_no_loop()
        except IllegalMove:
            work.close()
            raise
        waiting = Waiting()
        self._started().call_soon_threadsafe(_begin, work, waiting)
        return cast("T", waiting.result())

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._pid != os.getpid():  # forked: the thread stayed with the parent, and so perhaps did a held lock
            self._lock, self._loop, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(self._loop,), name="mulligan-sync", daemon=True).start()
            return self._loop

    def stop(self) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None


def check_no_loop() -> None:
    """IllegalMove on a thread whose event loop a blocking call would stop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise IllegalMove("this thread runs an event loop, which a sync call would block; await the async form instead")


def _begin(work: Coroutine[Any, Any, Any], waiting: Waiting) -> None:
    try:
        task = asyncio.get_running_loop().create_task(work)
    except Exception as problem:  # noqa: BLE001 - whoever waits gets it
        waiting.set_exception(problem)
        return
    _begun.add(task)
    task.add_done_callback(_begun.discard)
    task.add_done_callback(partial(_answer, waiting))


_begun: set[asyncio.Task[Any]] = set()  # a loop does not keep them


def _answer(waiting: Waiting, task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        waiting.set_exception(CancelledError())
    elif (problem := task.exception()) is not None:
        waiting.set_exception(problem)
    else:
        waiting.set_result(task.result())


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_cancel_rest())
        loop.close()


async def _cancel_rest() -> None:
    """Ends what still runs on this loop: threads wait for it."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


class SyncHandle(Generic[R]):
    """A handle whose calls block."""

    def __init__(self, app: SyncApp, handle: Handle[R]) -> None:
        self._app = app
        self._handle = handle
        self.id = handle.id
        self.created = handle.created

    def job(self) -> Job:
        """The job as it is stored now."""
        return self._app.run(self._handle.job())

    def result(self, timeout: float | None = None) -> R:
        """Waits for the job to end; see Handle.result."""
        return self._app.run(self._handle.result(timeout))


class SyncLease:
    """A manual lease whose calls block; see Lease."""

    def __init__(self, app: SyncApp, lease: Lease) -> None:
        self._app = app
        self._lease = lease
        self.job = lease.job
        self.id = lease.id

    def complete(self, result: Any = None) -> bool:
        """The job is done."""
        return self._app.run(self._lease.complete(result))

    def fail(self, message: str, **details: Any) -> bool:
        """The attempt failed; details as for Lease.fail."""
        return self._app.run(self._lease.fail(message, **details))

    def snooze(self, seconds: float, message: str = "") -> bool:
        """Not now, without spending a retry."""
        return self._app.run(self._lease.snooze(seconds, message))

    def release(self) -> bool:
        """Gives it back as if it had not been claimed."""
        return self._app.run(self._lease.release())

    def extend(self, seconds: float | None = None) -> bool:
        """Holds it for longer."""
        return self._app.run(self._lease.extend(seconds))


class SyncTask(Generic[P, R]):
    """A task whose enqueue blocks until the job is stored."""

    def __init__(self, app: SyncApp, task: TaskCall[P, R]) -> None:
        self._app = app
        self._task = task

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Stores a job that will call the task with these arguments."""
        [handle] = self._app.enqueue_many([self._task.job(*args, **kwargs)])
        return handle

    def enqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """The same in the open transaction of a plain connection of yours; see Mulligan.enqueue_in."""
        [handle] = self._app.enqueue_in(connection, [self._task.job(*args, **kwargs)])
        return handle


class SyncApp:
    """`app.sync`: the client side of an app, blocking."""

    def __init__(self, app: Mulligan, opening: OpenOnce) -> None:
        self._app = app
        self._opening = opening
        self._thread = LoopThread()
        self._publishing = threading.RLock()  # one event after the other, whoever enqueues; a subscriber may enqueue, too
        self._pid = os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs any coroutine of the app and waits for it."""
        waited_for = getattr(self._app.store, "waited_for", nullcontext)
        with waited_for():  # a signal's handler may interrupt an enqueue here, which it must not wait for
            return self._thread.run(work)

    def enqueue(self, task: str, /, **options: Any) -> SyncHandle[Any] | ScheduleHandle:
        """By name; see Mulligan.enqueue."""
        check_no_loop()
        asked = wanted(self._app, task, **options)
        if isinstance(asked, Schedule):
            return self.run(put_schedule(self._app, asked))
        [handle] = self.enqueue_many([asked])
        return handle

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[SyncHandle[Any]]:
        """Many jobs in few writes; see Mulligan.enqueue_many."""
        insert_now = getattr(self._app.store, "insert_now", None)
        handles = self.run(self._app.enqueue_many(jobs)) if insert_now is None else self._enqueue_here(insert_now, jobs)
        return [SyncHandle(self, handle) for handle in handles]

    def _enqueue_here(self, insert_now: InsertNow, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        """Mulligan.enqueue_many on this thread, by a store that knows how to (core/contract.InsertsNow)."""
        check_no_loop()
        check_jobs(jobs)
        if self._pid != os.getpid():  # forked: a thread that stayed with the parent may have held it
            self._publishing, self._pid = threading.RLock(), os.getpid()
        if not self._opening.is_open:
            self.run(self._app.open())
        handles: list[Handle[Any]] = []
        for batch in batches(jobs):
            inserted = insert_now(batch)
            with self._publishing:
                handles += published(self._app, batch, inserted)
        return handles

    def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[SyncHandle[Any]]:
        """Stores jobs in the open transaction of a plain connection of yours, in this thread; see Mulligan.enqueue_in."""
        check_jobs(jobs)
        self.run(self._app.open())
        inserted = insert_in_now(self._app.store, connection, jobs)
        return [SyncHandle(self, Handle(self._app, answer.id, answer.created)) for answer in inserted]

    def get(self, job_id: str) -> Job:
        """One job with its history."""
        return self.run(self._app.get(job_id))

    def jobs(self, **filters: Any) -> Iterator[Job]:
        """Jobs that match, newest first, page by page."""
        found = self._app.jobs(**filters)

        async def following() -> Job | None:
            return await anext(found, None)

        while (job := self.run(following())) is not None:
            yield job

    def status(self) -> Status:
        """All queues at a glance."""
        return self.run(self._app.status())

    def requeue(self, job_id: str, **options: Any) -> bool:
        """Sends one failed job back."""
        return self.run(self._app.requeue(job_id, **options))

    def cancel(self, job_id: str) -> CancelAnswer:
        """Cancels a job."""
        return self.run(self._app.cancel(job_id))

    def pause(self, queue: str, **options: Any) -> QueueState:
        """Pauses a queue for all workers."""
        return self.run(self._app.pause(queue, **options))

    def resume(self, queue: str, **options: Any) -> QueueState:
        """Resumes a queue."""
        return self.run(self._app.resume(queue, **options))

    def configure(self, queue: str, *, by: str = "", **changes: Unpack[QueueChanges]) -> dict[str, Any]:
        """Changes settings of a queue for all workers; see Mulligan.configure."""
        return self.run(self._app.configure(queue, by=by, **changes))

    def reset_queue(self, queue: str, *, by: str = "") -> None:
        """Takes back what `configure` changed."""
        self.run(self._app.reset_queue(queue, by=by))

    def configured(self) -> list[ChangedQueue]:
        """The queues whose settings are changed now."""
        return self.run(self._app.configured())

    def open_breaker(self, downstream: str, *, reason: str = "", by: str = "") -> BreakerStatus:
        """Holds back everything that depends on a downstream."""
        return self.run(self._app.open_breaker(downstream, reason=reason, by=by))

    def close_breaker(self, downstream: str, *, reason: str = "", by: str = "") -> BreakerStatus:
        """Lets it go again."""
        return self.run(self._app.close_breaker(downstream, reason=reason, by=by))

    def breakers(self) -> list[BreakerStatus]:
        """The breakers that were ever heard of, by name."""
        return self.run(self._app.breakers())

    def claim(self, **options: Any) -> list[SyncLease]:
        """Claims jobs by hand; see Mulligan.claim."""
        return [SyncLease(self, lease) for lease in self.run(self._app.claim(**options))]

    def close(self) -> None:
        """Closes the app and ends the background thread."""
        self.run(self._app.close())
        self._thread.stop()
