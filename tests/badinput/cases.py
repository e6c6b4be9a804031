"""The table of bad calls: what is called, which error answers, and which words of it tell what to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

from mulligan import (
    BadPayload,
    BadPolicy,
    BadSetting,
    Breaker,
    Downstream,
    JobNotFound,
    Mulligan,
    MulliganError,
    Queue,
    Rate,
    RetryBudget,
    RetryPolicy,
    UnknownQueue,
    UnknownTask,
    WrongArguments,
)


class Case(NamedTuple):
    """One bad call. `act` may return an awaitable; all of it must raise `error` with these words."""

    name: str
    act: Callable[[Any], Any]
    error: type[MulliganError]
    words: str
    looks: bool = False  # whether the store has to be opened to find out


def nested(depth: int) -> list[Any]:
    """A list in a list in a list ..."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cyclic() -> list[Any]:
    """A list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


class Text(str):
    """A text with behaviour of its own."""

    __slots__ = ()


def free(value: Any) -> Callable[[Any], Any]:
    """A call of a task that takes anything, with this argument."""
    return lambda app: app.enqueue("free", args=[value])


def option(**options: Any) -> Callable[[Any], Any]:
    """An enqueue with these options."""
    return lambda app: app.enqueue("free", **options)


def every(**options: Any) -> Callable[[Any], Any]:
    """An interval schedule with these settings."""
    return lambda app: app.enqueue("free", **options)


def worker(**settings: Any) -> Callable[[Any], Any]:
    """A worker with these settings."""
    return lambda app: app.worker(**settings)


HUGE = "x" * (1024 * 1024)
PAYLOADS = [
    Case("NaN", free(math.nan), BadPayload, "nan is not JSON; pass None or a string"),
    Case("infinity", free([1, {"a": -math.inf}]), BadPayload, "argument 0[1].a: -inf is not JSON"),
    Case("lone surrogate", free({"text": "a\ud800"}), BadPayload, "argument 0.text: lone surrogate at character 1"),
    Case("lone surrogate as a key", free({"a\udfff": 1}), BadPayload, "lone surrogate"),
    Case("lone surrogate as an argument's name", lambda app: app.enqueue("free", kwargs={"\ud800": 1}), BadPayload, "lone surrogate"),
    Case("depth 65", free(nested(65)), BadPayload, "nested deeper than 64 levels"),
    Case("depth 100,000", free(nested(100_000)), BadPayload, "nested deeper than 64 levels"),
    Case("depth 65 of dicts", free({"a": {"b": nested(63)}}), BadPayload, "nested deeper than 64 levels"),
    Case("a list that holds itself", free(cyclic()), BadPayload, "nested deeper than 64 levels"),
    Case("over one MiB", free(HUGE), BadPayload, "store the data elsewhere and pass a reference"),
    Case("over one MiB in many", lambda app: app.enqueue("free", args=["x" * 1_000] * 1_100), BadPayload, "the limit is 1,048,576"),
    Case("an integer of 64 bits", free(2**63), BadPayload, "beyond 64 bits; pass it as a string"),
    Case("an integer of 5,000 digits", free(-(10**5_000)), BadPayload, "beyond 64 bits; pass it as a string"),
    Case("bytes", free(b"x"), BadPayload, "argument 0: builtins.bytes is not JSON; pass plain dict"),
    Case("a set", free({1}), BadPayload, "builtins.set is not JSON"),
    Case("a datetime", free(datetime(2020, 1, 1, tzinfo=timezone.utc)), BadPayload, "datetime.datetime is not JSON"),
    Case("a Decimal", free(Decimal(1)), BadPayload, "decimal.Decimal is not JSON"),
    Case("an object", free(object()), BadPayload, "builtins.object is not JSON"),
    Case("a class of text", free(Text("x")), BadPayload, "Text is not JSON"),
    Case("a coroutine that was not awaited", lambda app: free_coroutine(app), BadPayload, "coroutine is not JSON"),
    Case("a key that is a number", free({1: 2}), BadPayload, "argument 0: key 1 is not a string"),
    Case("a key that is None", free([{None: 2}]), BadPayload, "argument 0[0]: key None is not a string"),
    Case("an argument's name that is a number", lambda app: app.enqueue("free", kwargs={1: 2}), BadPayload, "name is not a string"),
    Case("a set under a long key", free({"k" * 100_000: {1}}), BadPayload, "builtins.set is not JSON"),
]

CALLS = [
    Case(
        "unknown task", lambda app: app.enqueue("nosuch"), UnknownTask, "register it with @app.task, declare it with app.declare('nosuch')"
    ),
    Case("unknown task of 10 kB", lambda app: app.enqueue("x" * 10_000), UnknownTask, "declare it"),
    Case("a task that is a function", lambda app: app.enqueue(len), UnknownTask, "pass its name"),
    Case("a task that is a list", lambda app: app.enqueue([]), UnknownTask, "pass its name"),
    Case("missing argument", lambda app: app.enqueue("work"), WrongArguments, "missing a required argument: 'number'"),
    Case("too many arguments", lambda app: app.enqueue("work", args=[1, 2]), WrongArguments, "too many positional arguments"),
    Case("unknown keyword", lambda app: app.enqueue("work", args=[1], kwargs={"x": 1}), WrongArguments, "unexpected keyword argument 'x'"),
    Case("args as a text", lambda app: app.enqueue("free", args="abc"), WrongArguments, "give args as a list"),
    Case("args as a number", lambda app: app.enqueue("free", args=7), WrongArguments, "give args as a list"),
    Case("kwargs as a list", lambda app: app.enqueue("free", kwargs=[1]), WrongArguments, "kwargs as a dict"),
    Case("unknown option", option(retries=3), BadSetting, "unknown option retries; known: delay, eta"),
    Case("jobs that are none", lambda app: app.enqueue_many([1, 2]), BadSetting, "jobs made by task.job(...)"),
    Case("an iterator of jobs", lambda app: app.enqueue_many(iter([])), BadSetting, "takes a list of jobs"),
    Case("one bad job among good ones", lambda app: app.enqueue_many([good_job(app), None]), BadSetting, "jobs made by task.job(...)"),
    Case("unknown queue to pause", lambda app: app.pause("nosuch"), UnknownQueue, "known: default", looks=True),
    Case("unknown queue to resume", lambda app: app.resume("a\nb"), UnknownQueue, r"no queue is named 'a\nb'; known: default", looks=True),
    Case("a queue that is None", lambda app: app.pause(None), UnknownQueue, "known: default", looks=True),
    Case(
        "unknown job id",
        lambda app: app.get("018bcfe5-6800-7000-8000-000000000000"),
        JobNotFound,
        "removed after their retention",
        looks=True,
    ),
    Case("malformed job id", lambda app: app.cancel("17"), JobNotFound, "no job has the id '17'", looks=True),
    Case("a job id of 1 MB", lambda app: app.requeue(HUGE), JobNotFound, "no job has the id", looks=True),
    Case("a job id that is None", lambda app: app.get(None), JobNotFound, "no job has the id None", looks=True),
    Case("a request id with NUL", lambda app: app.requeue(witness_id(app), request_id="a\0"), BadSetting, "request_id", looks=True),
    Case(
        "an empty request id",
        lambda app: app.requeue(witness_id(app), request_id=""),
        BadSetting,
        "request_id must be a text of 1",
        looks=True,
    ),
    Case("claim from a queue of no name", lambda app: app.claim(queue=""), BadSetting, "queue '' is not a valid name"),
    Case("a filter of no status", lambda app: collect(app, status="dead"), BadSetting, "one of pending, processing, done", looks=True),
    Case("a limit below none", lambda app: collect(app, limit=-1), BadSetting, "limit must be", looks=True),
    Case("a limit that is a text", lambda app: collect(app, limit="3"), BadSetting, "limit must be", looks=True),
]

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - naive is what is bad about it
OPTIONS = [
    Case("naive eta", option(eta=NAIVE), BadSetting, "aware datetime, for example datetime.now(timezone.utc)"),
    Case("eta in 2300", option(eta=datetime(2300, 1, 1, tzinfo=timezone.utc)), BadSetting, "between 1970 and 2200"),
    Case("eta in 2200", option(eta=datetime(2200, 1, 1, tzinfo=timezone.utc)), BadSetting, "between 1970 and 2200"),
    Case("eta in 1969", option(eta=datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc)), BadSetting, "between 1970 and 2200"),
    Case("eta in 9999, far east", option(eta=datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))), BadSetting, "1970 and 2200"),
    Case("eta as a number", option(eta=1_700_000_000), BadSetting, "aware datetime"),
    Case("negative delay", option(delay=-1), BadSetting, "delay must be between 0 and"),
    Case("delay NaN", option(delay=math.nan), BadSetting, "delay must be between 0 and"),
    Case("delay infinite", option(delay=math.inf), BadSetting, "delay must be between 0 and"),
    Case("delay of a timedelta", option(delay=timedelta(1)), BadSetting, "delay must be a number of seconds"),
    Case("delay of True", option(delay=True), BadSetting, "delay must be a number of seconds"),
    Case("delay of 10^400", option(delay=10**400), BadSetting, "delay must be between 0 and"),
    Case("delay of two hundred years", option(delay=200 * 365 * 86_400), BadSetting, "delay must end before the year 2200"),
    Case("priority 7", option(priority=7), BadSetting, "0 (normal), 1 (raised) or 2 (urgent)"),
    Case("priority True", option(priority=True), BadSetting, "0 (normal), 1 (raised) or 2 (urgent)"),
    Case("priority 1.0", option(priority=1.0), BadSetting, "0 (normal), 1 (raised) or 2 (urgent)"),
    Case("timeout 0", option(timeout=0), BadSetting, "greater than 0 seconds, or None for none"),
    Case("timeout -1", option(timeout=-1), BadSetting, "timeout must be between 0"),
    Case("timeout of a text", option(timeout="5"), BadSetting, "timeout must be a number of seconds"),
    Case("max_age -1", option(max_age=-1), BadPolicy, "max_age"),
    Case("max_age NaN", option(max_age=math.nan), BadPolicy, "max_age"),
    Case("max_retries -1", option(max_retries=-1), BadPolicy, "max_retries must be a whole number from 0"),
    Case("max_retries 1.5", option(max_retries=1.5), BadPolicy, "max_retries must be a whole number from 0"),
    Case("queue with a newline", option(queue="a\nb"), BadSetting, r"queue 'a\nb' is not a valid name: 1 to 128"),
    Case("queue with ANSI", option(queue="\x1b[31mred"), BadSetting, "is not a valid name"),
    Case("queue with ../", option(queue="../up"), BadSetting, "starting with a letter, digit or _"),
    Case("queue with NUL", option(queue="a\0b"), BadSetting, "is not a valid name"),
    Case("queue empty", option(queue=""), BadSetting, "is not a valid name"),
    Case("queue of 10 kB", option(queue="q" * 10_000), BadSetting, "is not a valid name"),
    Case("queue of another script", option(queue="очередь"), BadSetting, "is not a valid name"),
    Case("queue that is a number", option(queue=5), BadSetting, "is not a valid name"),
    Case("tags as a text", option(tags="urgent"), BadSetting, "tags must be a list"),
    Case("tags as a number", option(tags=5), BadSetting, "tags must be a list"),
    Case("a tag that is a number", option(tags=[5]), BadSetting, "tag must be a text"),
    Case("too many tags", option(tags=["t"] * 21), BadSetting, "at most 20"),
    Case("a tag with NUL", option(tags=["a\0"]), BadSetting, "holds a NUL"),
    Case("unique_key empty", option(unique_key=""), BadSetting, "unique_key must be a text of 1 to 256"),
    Case("unique_key of 10 kB", option(unique_key="k" * 10_000), BadSetting, "1 to 256 characters"),
    Case("unique_key with a lone surrogate", option(unique_key="\ud800"), BadSetting, "lone surrogate"),
    Case("unique_key that is a number", option(unique_key=42), BadSetting, "unique_key must be a text"),
    Case("interval 0", every(interval=0), BadSetting, "interval must be at least 0.001 seconds"),
    Case("interval negative", every(interval=-5), BadSetting, "interval must be between 0"),
    Case("interval NaN", every(interval=math.nan), BadSetting, "interval must be between 0"),
    Case("interval with a delay", every(interval=5, delay=1), BadSetting, "take no delay, eta or unique_key"),
    Case("interval of a strange name", every(interval=5, name="a b"), BadSetting, "schedule 'a b' is not a valid name"),
    Case("interval with an unknown rule", every(interval=5, missed="never"), BadSetting, "missed must be one of one, skip, all"),
    Case("a name without an interval", every(name="x"), BadSetting, "give interval=seconds as well"),
]

SETTINGS = [
    Case("unknown worker setting", worker(threads=5), BadSetting, "unknown worker setting threads; known: queues, concurrency"),
    Case("concurrency 0", worker(concurrency=0), BadSetting, "concurrency must be between 1 and 10000"),
    Case("concurrency -1", worker(concurrency=-1), BadSetting, "concurrency must be between 1"),
    Case("concurrency 2.5", worker(concurrency=2.5), BadSetting, "concurrency must be a whole number"),
    Case("concurrency of a text", worker(concurrency="10"), BadSetting, "concurrency must be a whole number"),
    Case("concurrency True", worker(concurrency=True), BadSetting, "concurrency must be"),
    Case("concurrency None", worker(concurrency=None), BadSetting, "concurrency must be"),
    Case("concurrency 10^9", worker(concurrency=10**9), BadSetting, "concurrency must be between"),
    Case("lease 0", worker(lease=0), BadSetting, "lease must be between 0.1 and"),
    Case("lease NaN", worker(lease=math.nan), BadSetting, "lease must be between"),
    Case("poll infinite", worker(poll=math.inf), BadSetting, "poll must be between"),
    Case("grace -1", worker(grace=-1), BadSetting, "grace must be between"),
    Case("batch 0", worker(batch=0), BadSetting, "batch must be between"),
    Case("keep_done -1", worker(keep_done=-1), BadSetting, "keep_done must be between"),
    Case("keep_failed of a text", worker(keep_failed="90d"), BadSetting, "keep_failed must be between"),
    Case("keeper_thread of a text", worker(keeper_thread="yes"), BadSetting, "keeper_thread must be True or False"),
    Case("queues as a text", worker(queues="default"), BadSetting, "queues must be a list"),
    Case("no queues", worker(queues=[]), BadSetting, "at least one queue name"),
    Case("a queue of no name to serve", worker(queues=["a b"]), BadSetting, "queue 'a b' is not a valid name"),
    Case("task of no name", lambda app: app.task(name="a b")(lambda: None), BadSetting, "task 'a b' is not a valid name"),
    Case("task name with NUL", lambda app: app.declare("a\0b"), BadSetting, "is not a valid name"),
    Case("task in a queue of no name", lambda app: app.task(queue="")(lambda: None), BadSetting, "queue '' is not a valid name"),
    Case("task with timeout 0", lambda app: app.task(timeout=0), BadSetting, "greater than 0 seconds, or None for none"),
    Case("task with tags as a text", lambda app: app.task(tags="x"), BadSetting, "tags must be a list"),
    Case("task with priority 3", lambda app: app.declare("x", priority=3), BadSetting, "priority must be"),
    Case("task with a policy by name", lambda app: app.task(retry="omniq"), BadSetting, "retry must be a RetryPolicy(...)"),
    Case("queue setting of no name", lambda app: app.queues(Queue("")), BadSetting, "queue '' is not a valid name"),
    Case("fleet-wide concurrency of none", lambda app: app.queues(Queue("q", concurrency=0)), BadSetting, "to stop a queue, pause it"),
    Case("rate of nothing", lambda app: app.queues(Queue("q", rate=Rate())), BadSetting, "exactly one of per_s"),
    Case("rate as a text in code", lambda app: app.task(rate="5/s"), BadSetting, "rate must be a Rate(...)"),
    Case("budget of infinity", lambda app: app.task(budget=RetryBudget(per_s=math.inf)), BadSetting, "per_s must be a number"),
    Case("budget of NaN", lambda app: app.task(budget=RetryBudget(ratio=math.nan)), BadSetting, "ratio must be a number"),
    Case("breaker that opens at nothing", lambda app: Breaker(failure_rate=0), BadSetting, "breaker: failure_rate must be"),
    Case("downstream of no name", lambda app: app.downstreams(Downstream("")), BadSetting, "downstream '' is not a valid name"),
    Case("task that depends on a function", lambda app: app.task(depends_on=len), BadSetting, "depends_on"),
    Case("fair key with a separator", option(fair_key="a\x1fb"), BadSetting, "fair_key"),
    Case("concurrency key of 10 kB", option(concurrency_key="x" * 10_000), BadSetting, "concurrency_key must be a text"),
    Case("configured rate of words", lambda app: app.configure("default", rate="fast"), BadSetting, "a rate is written as 100/m"),
    Case("configured rate of 10 kB", lambda app: app.configure("default", rate="9" * 10_000 + "/s"), BadSetting, "a rate is written as"),
    Case("configured colour", lambda app: app.configure("default", colour=1), BadSetting, "colour cannot be changed while workers run"),
    Case("configured queue of no name", lambda app: app.configure("", claim="fifo"), BadSetting, "queue '' is not a valid name"),
    Case("configured queue nobody knows", lambda app: app.configure("q", claim="fifo"), UnknownQueue, "known:", looks=True),
    Case("breaker of no name", lambda app: app.open_breaker(""), BadSetting, "downstream '' is not a valid name", looks=True),
    Case("unknown preset", lambda app: RetryPolicy.preset("celery"), BadPolicy, "micro-queue"),
]

ALL = [*PAYLOADS, *CALLS, *OPTIONS, *SETTINGS]


async def collect(app: Mulligan, **filters: Any) -> list[Any]:
    """All jobs that match."""
    return [job async for job in app.jobs(**filters)]


async def free_coroutine(app: Mulligan) -> None:
    """Enqueues a coroutine in place of its result, as a forgotten await does."""
    forgotten = app.get("x")
    try:
        await app.enqueue("free", args=[forgotten])
    finally:
        forgotten.close()


def good_job(app: Mulligan) -> Any:
    """A job that could be stored."""
    return app.state.work.job(1)


def witness_id(app: Mulligan) -> str:
    """The id of the job that was stored before."""
    return str(app.state.witness.id)
