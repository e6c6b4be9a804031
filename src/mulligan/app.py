"""Mulligan: the app. It holds the tasks, queues and hooks of a program, and is the door to its store."""

from __future__ import annotations

import importlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace, TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload

from mulligan.admin import Admin, Status
from mulligan.claiming import ManualClaims
from mulligan.config import default_url
from mulligan.core.clock import Clock, SystemClock, system_rng
from mulligan.core.codec import check_name
from mulligan.core.contract import CancelAnswer, Query, QueueState, Store
from mulligan.core.errors import BadSetting, IllegalMove, shown
from mulligan.core.job import Job, NewJob
from mulligan.core.schedule import Missed, Schedule
from mulligan.enqueueing import batches, published, put_schedule, wanted
from mulligan.handle import Handle, ScheduleHandle
from mulligan.inline import inline_job
from mulligan.joining import insert_in
from mulligan.lease import Lease
from mulligan.observe.bus import EventBus
from mulligan.observe.log import LogWriter
from mulligan.observe.metrics import Metrics
from mulligan.observe.retry_rate import RetryRateAlarm
from mulligan.opening import OpenOnce
from mulligan.policy.downstream import Downstream
from mulligan.policy.queues import Queue, checked_changes
from mulligan.policy.retry import RetryPolicy
from mulligan.request import JobBuilder, Options, TaskOptions, TaskSettings, check_claim, check_jobs, check_queues
from mulligan.steering import BreakerStatus, ChangedQueue, QueueChanges, Steering
from mulligan.stores import open_store
from mulligan.sync import SyncApp
from mulligan.task import Task, TaskDecorator
from mulligan.version import VERSION
from mulligan.worker.context import Context
from mulligan.worker.equipment import Equipment
from mulligan.worker.hooks import Hook, as_hook
from mulligan.worker.perform import Middleware
from mulligan.worker.registry import DEFAULT_QUEUE, Registry, TaskDef, define
from mulligan.worker.settings import WorkerSettings
from mulligan.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
AnyHook = TypeVar("AnyHook", bound=Callable[..., Any])


class Mulligan:
    """A durable job queue.

    `url` names the store: sqlite:///jobs.db (relative), sqlite:////var/lib/jobs.db (absolute) or memory://. Without one,
    MULLIGAN_STORE is used, then sqlite:///mulligan.db. Nothing is opened before the first call that needs it.

    retry: the policy that every task and queue starts from. allow_paths: module prefixes below which functions may be
    enqueued by their path without being registered. clock, rng: for tests and simulations.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        allow_paths: Sequence[str] = (),
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._rng = rng or system_rng()
        self._retry = retry
        self._store_clock = clock
        self.state = SimpleNamespace()
        self.registry = Registry(allow_paths)
        self._queues: dict[str, Queue] = {}
        self._builder = JobBuilder(self._queues, retry)
        self._middleware: list[Middleware] = []
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []
        self._downstreams: dict[str, Downstream] = {}
        self._claims: ManualClaims | None = None  # made by the first claim, and anew when settings change
        self._opening = OpenOnce()
        self.events = EventBus()
        self.metrics = Metrics()
        self.events.measure(self.metrics)
        log_writer, alarm = LogWriter(), RetryRateAlarm()
        self.events.subscribe(log_writer.on_event, log_writer.kinds, listens_to_rows=log_writer.listens_to_rows)
        self.events.measure(alarm)
        self.use_store(default_url() if url is None else url)
        self.sync = SyncApp(self, self._opening)

    def use_store(self, url: str) -> None:
        """Takes another store, before anything has opened the present one: what `mulligan worker --store` does."""
        if self._opening.begun:
            raise IllegalMove("this app has opened its store already; choose another one before the first call that needs it")
        self.store: Store = open_store(url, clock=self._store_clock)
        self._admin = Admin(self.store, self.events, self._rng, self._clock)
        self._steering = Steering(self.store, self.events)
        self._claims = None

    def __repr__(self) -> str:
        return f"Mulligan({self.store.url!r})"

    # --- opening and closing -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Mulligan:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Opens the store, creating or migrating it if needed. Every call does this by itself; calling it early shows errors early."""
        await self._opening.run(self.store.open)

    async def close(self) -> None:
        """Closes the store. Another call opens it again."""
        self._opening.forget()
        await self.store.close()

    # --- tasks and queues --------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: None = None, /, *, name: str | None = None, **settings: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, function: Any = None, /, *, name: str | None = None, **settings: Any) -> Any:
        """Registers a function as a task: `@app.task`, or `@app.task(queue=..., retry=..., timeout=...)` with its defaults.

        depends_on names the downstream it calls: its jobs obey that one's breaker and budget. rate and budget bound, over the whole
        fleet, how often jobs of this task are started and retried.
        """
        defaults = TaskSettings.of(settings).checked(self._retry)

        def register(given: Callable[..., Any]) -> Task[Any, Any, Any]:
            definition = define(name, given, **defaults)
            self.registry.add(definition)
            return Task(self, definition)

        return register if function is None else register(function)

    def declare(self, name: str, **settings: Unpack[TaskOptions]) -> None:
        """Makes a task known by name, to be enqueued here and run where it is registered. Takes the settings of `task`."""
        defaults = TaskSettings.of(settings).checked(self._retry)
        self.registry.add(TaskDef(name=check_name(name, "task"), function=None, **defaults))

    def include(self, module: str) -> None:
        """Imports a module so that its tasks are registered."""
        importlib.import_module(module)

    def queues(self, *queues: Queue) -> None:
        """Sets how queues are served: claim strategy, retry policy, held slots."""
        for queue in queues:
            if not isinstance(queue, Queue):
                raise BadSetting(f"app.queues takes Queue(...) values, not {shown(queue)}")
            self._queues[queue.name] = queue
        self._builder.forget_policies()
        self._claims = None

    def downstreams(self, *downstreams: Downstream) -> None:
        """Sets how what tasks depend on (`depends_on=`) is treated: its breaker, its retry budget, its rate."""
        for downstream in downstreams:
            if not isinstance(downstream, Downstream):
                raise BadSetting(f"app.downstreams takes Downstream(...) values, not {shown(downstream)}")
            self._downstreams[downstream.name] = downstream
        self._claims = None

    def queue_names(self) -> list[str]:
        """The queues this app knows: those of its tasks, those it configured, and the default one."""
        return sorted({DEFAULT_QUEUE, *self._queues, *(task.queue for task in self.registry)})

    def use(self, middleware: Middleware) -> Middleware:
        """Wraps every attempt: `async def middleware(ctx, call_next)`. The first one added is the outermost."""
        self._middleware.append(middleware)
        return middleware

    def on_startup(self, hook: AnyHook) -> AnyHook:
        """Runs the function in each worker process before it claims; put what handlers need on `app.state`."""
        self._startup.append(as_hook(hook))
        return hook

    def on_shutdown(self, hook: AnyHook) -> AnyHook:
        """Runs the function in each worker process after its last job."""
        self._shutdown.append(as_hook(hook))
        return hook

    # --- enqueueing --------------------------------------------------------------------------------------------------

    def build(self, task: TaskDef, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options) -> NewJob:
        """The job of such a call, checked and encoded, not yet stored."""
        return self._builder.build(task, args, kwargs, options, self._clock.now_us())

    def inline_job(self, new: NewJob) -> Job:
        """What `ctx.job` shows when a task is called directly."""
        return inline_job(new, self._clock.now_us())

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        """Stores many jobs in few writes, in order.

        Interrupted half-way, some batches are stored and the rest is not; calling it again with the same list stores the rest
        and repeats nothing, because each job has its id from the moment it was made.
        """
        check_jobs(jobs)
        await self.open()
        handles: list[Handle[Any]] = []
        for batch in batches(jobs):
            handles += published(self, batch, await self.store.insert(batch))
        return handles

    async def enqueue_in(self, connection: Any, jobs: Sequence[NewJob]) -> list[Handle[Any]]:
        """Stores jobs in the open transaction of a connection of yours to the store's database: they exist if and when you commit.

        Sleeping workers are not told, since only you know when you commit: they find the jobs at their next poll.
        """
        check_jobs(jobs)
        await self.open()
        return [Handle(self, answer.id, answer.created) for answer in await insert_in(self.store, connection, jobs)]

    @overload
    async def enqueue(
        self, task: str, /, *, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, interval: None = None, **options: Any
    ) -> Handle[Any]: ...
    @overload
    async def enqueue(
        self,
        task: str,
        /,
        *,
        interval: float,
        name: str | None = None,
        missed: Missed = "one",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ScheduleHandle: ...

    async def enqueue(self, task: str, /, **options: Any) -> Handle[Any] | ScheduleHandle:
        """Enqueues by name. With `interval`, upserts a schedule called `name` (default: the task's name) that makes one job per tick."""
        asked = wanted(self, task, **options)
        if isinstance(asked, Schedule):
            return await put_schedule(self, asked)
        [handle] = await self.enqueue_many([asked])
        return handle

    async def schedules(self) -> list[ScheduleHandle]:
        """All stored schedules, by name."""
        await self.open()
        return [ScheduleHandle(self, schedule) for schedule in await self.store.schedules()]

    # --- looking and operating ---------------------------------------------------------------------------------------

    async def get(self, job_id: str) -> Job:
        """One job with its history; JobNotFound if there is none."""
        await self.open()
        return await self._admin.get(job_id)

    async def jobs(
        self,
        *,
        status: Any = None,
        queue: str | None = None,
        task: str | None = None,
        lane: Literal["fresh", "retry"] | None = None,
        schedule: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Job]:
        """Jobs that match every given filter, newest first, read page by page."""
        await self.open()
        query = Query(status=status, queue=queue, task=task, lane=lane, schedule=schedule, tag=tag)
        async for job in self._admin.jobs(query, limit):
            yield job

    async def status(self) -> Status:
        """Per queue what waits, runs, is done and has failed, and the workers alive; from stored state."""
        await self.open()
        return await self._admin.status()

    async def requeue(self, job_id: str, *, request_id: str | None = None, by: str = "") -> bool:
        """Sends a failed job back under a new generation; False for any other. Of two at once, one wins."""
        await self.open()
        return await self._admin.requeue(job_id, request_id=request_id, by=by)

    async def cancel(self, job_id: str) -> CancelAnswer:
        """Cancels a pending job ("cancelled"), asks a running one to stop ("requested"); "finished" when it is too late."""
        await self.open()
        return await self._admin.cancel(job_id)

    async def pause(self, queue: str, *, reason: str = "", by: str = "") -> QueueState:
        """Nothing of this queue is claimed any more, by any worker, until `resume`; what runs goes on."""
        await self.open()
        return await self._admin.set_paused(queue, True, self.queue_names(), reason=reason, by=by)

    async def resume(self, queue: str, *, by: str = "") -> QueueState:
        """Lets a paused queue be claimed again."""
        await self.open()
        return await self._admin.set_paused(queue, False, self.queue_names(), by=by)

    async def configure(self, queue: str, *, by: str = "", **changes: Unpack[QueueChanges]) -> dict[str, Any]:
        """Changes how a queue is served by all workers, while they run and over what their code says; returns all that is changed now."""
        wanted = checked_changes(queue, changes)
        await self.open()
        return await self._steering.configure(queue, wanted, self.queue_names(), by=by)

    async def reset_queue(self, queue: str, *, by: str = "") -> None:
        """Takes back what `configure` changed."""
        await self.open()
        await self._steering.configure(queue, None, self.queue_names(), by=by)

    async def configured(self) -> list[ChangedQueue]:
        """The queues whose settings are changed now, by name."""
        await self.open()
        return await self._steering.changed()

    async def open_breaker(self, downstream: str, *, reason: str = "", by: str = "") -> BreakerStatus:
        """Holds back every job that depends on this downstream, in all queues, until `close_breaker`; no attempts are spent."""
        await self.open()
        return await self._steering.open_breaker(downstream, reason=reason, by=by)

    async def close_breaker(self, downstream: str, *, reason: str = "", by: str = "") -> BreakerStatus:
        """Lets the jobs that depend on this downstream run again, at once."""
        await self.open()
        return await self._steering.close_breaker(downstream, reason=reason, by=by)

    async def breakers(self) -> list[BreakerStatus]:
        """The breakers that were ever heard of, by name."""
        await self.open()
        return await self._steering.breakers()

    # --- running -----------------------------------------------------------------------------------------------------

    async def claim(self, *, queue: str = DEFAULT_QUEUE, limit: int = 1, lease: float = 30.0) -> list[Lease]:
        """Claims due jobs by hand, by the queue's own strategy. Settle each lease with complete, fail, snooze or release."""
        lease_us = check_claim(limit, lease)
        check_name(queue, "queue")
        await self.open()
        if self._claims is None:
            self._claims = ManualClaims(self._equipment(self._queues), self._clock)
        return await self._claims.claim(queue, limit, lease_us)

    def worker(self, *, queues: Sequence[str] | None = None, **settings: Any) -> Worker:
        """A worker in this process: `async with app.worker(concurrency=100) as w`. Settings as in WorkerSettings."""
        names = self.queue_names() if queues is None else check_queues(queues)
        unknown = sorted(set(settings) - set(WorkerSettings.__struct_fields__))
        if unknown:
            raise BadSetting(f"unknown worker setting {', '.join(unknown)}; known: queues, {', '.join(WorkerSettings.__struct_fields__)}")
        equipment = self._equipment({name: self._queues.get(name) or Queue(name) for name in names})
        return Worker(equipment, WorkerSettings(**settings))

    def _equipment(self, queues: Mapping[str, Queue]) -> Equipment:
        return Equipment(
            store=self.store,
            registry=self.registry,
            queues=queues,
            downstreams=dict(self._downstreams),
            flow=self.metrics.flow,
            policy=self._retry,
            bus=self.events,
            rng=self._rng,
            state=self.state,
            middleware=self._middleware,
            startup=[self.open, *self._startup],
            shutdown=self._shutdown,
            version=VERSION,
        )
