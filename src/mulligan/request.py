"""From a call to the job that is stored: options checked, policy frozen, arguments encoded. Nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from msgspec.structs import replace

from mulligan.core.clock import TIME_MAX_US, datetime_to_us, seconds_to_us
from mulligan.core.codec import check_group_key, check_key, check_name, encode_payload
from mulligan.core.errors import BadSetting, WrongArguments, shown
from mulligan.core.ids import new_id
from mulligan.core.job import PRIORITIES, NewJob
from mulligan.core.schedule import MISSED, Missed, Schedule
from mulligan.policy.budget import WEIGHTED_IS_FOR_QUEUES, Rate, RetryBudget
from mulligan.policy.queues import Queue
from mulligan.policy.retry import RetryPolicy, freeze
from mulligan.worker.policies import merged
from mulligan.worker.registry import DEFAULT_QUEUE, TaskDef

TIMEOUT_S = 900.0  # no time-out at all must be asked for by writing timeout=None
TAGS_MAX = 20
INTERVAL_MIN_US = 1_000
CLAIM_MAX = 10_000
KNOWN_MAX = 10_000  # tasks of which something is kept


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What one enqueue may say beyond its arguments. Times in seconds. UNSET takes the task's, queue's or app's default."""

    delay: float | None = None  # run no earlier than this many seconds from now
    eta: datetime | None = None  # run no earlier than this time
    max_age: float | None | msgspec.UnsetType = msgspec.UNSET  # give up when not finished this long after it first fell due
    priority: int | msgspec.UnsetType = msgspec.UNSET  # 0 normal, 1 raised, 2 urgent
    unique_key: str | None = None  # at most one live job per queue and key
    fair_key: str | None = None  # whom the job is for: tenants take turns, whatever one of them floods the queue with
    concurrency_key: str | None = None  # jobs with the same key in a queue run one at a time (Queue.key_concurrency)
    tags: Sequence[str] = ()
    queue: str | None = None
    timeout: float | None | msgspec.UnsetType = msgspec.UNSET  # of one execution; None: none
    max_retries: int | None | msgspec.UnsetType = msgspec.UNSET
    retry: RetryPolicy | None = None

    def with_more(self, changes: Mapping[str, Any]) -> Options:
        """These options with some replaced; an unknown name is refused with the list of known ones."""
        if not changes:
            return self
        unknown = sorted(set(changes) - set(self.__struct_fields__))
        if unknown:
            raise BadSetting(f"unknown option {', '.join(unknown)}; known: {', '.join(self.__struct_fields__)}")
        return replace(self, **changes)


PLAIN = Options()  # of most jobs


def check_timeout(timeout: float | None) -> int | None:
    """A time-out in microseconds; None means none, zero makes no sense."""
    if timeout is None:
        return None
    timeout_us = seconds_to_us(timeout, "timeout")
    if timeout_us == 0:
        raise BadSetting("timeout must be greater than 0 seconds, or None for none")
    return timeout_us


def check_delay(delay: float, now_us: int) -> int:
    """A delay in microseconds; BadSetting if it ends after the last time a store keeps."""
    delay_us = seconds_to_us(delay, "delay")
    if now_us + delay_us >= TIME_MAX_US:
        raise BadSetting(f"delay must end before the year 2200, not {shown(delay)} seconds from now")
    return delay_us


def check_priority(priority: object) -> int:
    """One of the three levels; BadSetting otherwise."""
    if priority not in PRIORITIES or isinstance(priority, bool) or not isinstance(priority, int):
        raise BadSetting(f"priority must be 0 (normal), 1 (raised) or 2 (urgent), not {shown(priority)}")
    return priority


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags as they are stored; BadSetting if there are too many or one is no text."""
    if isinstance(tags, str) or not isinstance(tags, Sequence) or len(tags) > TAGS_MAX:
        raise BadSetting(f"tags must be a list of at most {TAGS_MAX} texts, not {shown(tags)}")
    return tuple(check_key(tag, "tag") for tag in tags)


def check_retry(retry: object) -> None:
    """BadSetting for what is neither a policy nor None."""
    if retry is not None and not isinstance(retry, RetryPolicy):
        raise BadSetting(f"retry must be a RetryPolicy(...), such as RetryPolicy(max_retries=5), not {shown(retry)}")


def check_queues(queues: Sequence[str]) -> list[str]:
    """The names of the queues a worker shall serve: at least one."""
    if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
        raise BadSetting(f"queues must be a list of at least one queue name, or left out for all, not {shown(queues)}")
    return [check_name(name, "queue") for name in queues]


def check_claim(limit: object, lease: float) -> int:
    """The lease of a claim by hand in microseconds, if its bounds make sense."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= CLAIM_MAX:
        raise BadSetting(f"limit must be a whole number from 1 to {CLAIM_MAX}, not {shown(limit)}")
    lease_us = seconds_to_us(lease, "lease")
    if lease_us == 0:
        raise BadSetting("lease must be greater than 0 seconds: a claim without a lease could be taken over at once")
    return lease_us


def check_jobs(jobs: object) -> None:
    """BadSetting unless these are jobs to insert: most often somebody called enqueue in place of job."""
    if not isinstance(jobs, Sequence) or isinstance(jobs, str):
        raise BadSetting(f"this call takes a list of jobs, such as [task.job(1), task.job(2)], not {shown(jobs)}")
    for job in jobs:
        if not isinstance(job, NewJob):
            raise BadSetting(f"this call takes jobs made by task.job(...), not {shown(job)}")


class TaskOptions(TypedDict, total=False):
    """The settings of a task as keywords, for type checkers; see TaskSettings."""

    queue: str
    retry: RetryPolicy | None
    timeout: float | None
    priority: int
    tags: Sequence[str]
    depends_on: str | None
    rate: Rate | None
    budget: RetryBudget | None


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `@app.task(...)` and `app.declare(...)` may say of a task, beside its name."""

    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy | None = None
    timeout: float | None = TIMEOUT_S
    priority: int = 0
    tags: Sequence[str] = ()
    depends_on: str | None = None
    rate: Rate | None = None
    budget: RetryBudget | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TaskSettings:
        """The settings by name; an unknown one is refused with the list of known ones."""
        unknown = sorted(set(given) - set(cls.__struct_fields__))
        if unknown:
            raise BadSetting(f"unknown task setting {', '.join(unknown)}; known: name, {', '.join(cls.__struct_fields__)}")
        return cls(**given)

    def checked(self, base: RetryPolicy | None) -> dict[str, Any]:
        """The settings as a TaskDef has them; what could not work is refused here, not at the first failure."""
        check_retry(self.retry)
        if self.retry is not None:
            self.retry.over(base or RetryPolicy()).resolved()
        for field, kind in (("rate", Rate), ("budget", RetryBudget)):
            if not isinstance(getattr(self, field), (kind, type(None))):
                raise BadSetting(f"{field} must be a {kind.__name__}(...), not {shown(getattr(self, field))}")
        if self.budget is not None and self.budget.each_tenant:
            raise BadSetting("each_tenant belongs to the budget of a queue: Queue(..., budget=RetryBudget(..., each_tenant=True))")
        if self.budget is not None and self.budget.over == "weighted":
            raise BadSetting(WEIGHTED_IS_FOR_QUEUES)
        return {
            "queue": check_name(self.queue, "queue"),
            "retry": self.retry,
            "timeout_us": check_timeout(self.timeout),
            "priority": check_priority(self.priority),
            "tags": check_tags(self.tags),
            "depends_on": None if self.depends_on is None else check_name(self.depends_on, "depends_on"),
            "rate": self.rate,
            "budget": self.budget,
        }


class FrozenPolicy(msgspec.Struct, frozen=True):
    """What of a policy is stored with a job."""

    text: str
    max_retries: int | None
    max_age_us: int | None


class JobBuilder:
    """Makes jobs of calls. The policy of a task without options of its own is frozen once, not per call; and of a call without any
    options everything but the id and the arguments."""

    def __init__(self, queues: Mapping[str, Queue], base: RetryPolicy | None) -> None:
        self._queues = queues
        self._base = base
        check_retry(base)
        if base is not None:
            base.resolved()  # a policy that cannot work is refused here, not at the first failure
        self._frozen: dict[tuple[str, str], tuple[RetryPolicy | None, FrozenPolicy]] = {}  # with the task's policy it was made from
        self._plain: dict[str, tuple[TaskDef, NewJob]] = {}  # by task: a job without an id and arguments, with what it was made from

    def forget_policies(self) -> None:
        """To be called when a queue's settings change."""
        self._frozen.clear()
        self._plain.clear()

    def build(self, task: TaskDef, args: Sequence[Any], kwargs: Mapping[str, Any], options: Options, now_us: int) -> NewJob:
        """The job to insert, or a UsageError that says what is wrong with the call.

        `now_us` is this process's time: it makes the id and bounds the delay. When the job is due, the store's clock says.
        """
        # What a call of a task gives comes first: asking for an abstract type takes ten times as long.
        if (type(args) is not tuple or type(kwargs) is not dict) and (
            isinstance(args, str) or not isinstance(args, (list, Sequence)) or not isinstance(kwargs, (dict, Mapping))
        ):
            raise WrongArguments(f"{task.name}: give args as a list and kwargs as a dict, as in args=[1, 2], kwargs={{'x': 3}}")
        task.check_arguments(args, kwargs)
        like = self._without_options(task, now_us) if options == PLAIN else self._described(task, options, now_us)
        return replace(like, id=new_id(now_us), payload=encode_payload(args, kwargs))

    def _without_options(self, task: TaskDef, now_us: int) -> NewJob:
        known = self._plain.get(task.name)
        if known is None or known[0] is not task:  # it was registered anew
            if len(self._plain) >= KNOWN_MAX:  # names may come from outside (allow_paths)
                self.forget_policies()
            known = self._plain[task.name] = (task, self._described(task, PLAIN, now_us))
        return known[1]

    def _described(self, task: TaskDef, options: Options, now_us: int) -> NewJob:
        """A job as the task and the options ask for it, still without an id and arguments."""
        if options.delay is not None and options.eta is not None:
            raise BadSetting("give delay or eta, not both")
        queue_name = task.queue if options.queue is None else check_name(options.queue, "queue")
        policy = self._policy(task, queue_name, options)
        fair_key = None if options.fair_key is None else check_group_key(options.fair_key, "fair_key")
        concurrency_key = None if options.concurrency_key is None else check_group_key(options.concurrency_key, "concurrency_key")
        return NewJob(
            id="",
            queue=queue_name,
            task=task.name,
            payload="",
            policy=policy.text,
            max_retries=policy.max_retries,
            max_age_us=policy.max_age_us,
            priority=task.priority if options.priority is msgspec.UNSET else check_priority(options.priority),
            delay_us=0 if options.delay is None else check_delay(options.delay, now_us),
            eta_us=None if options.eta is None else datetime_to_us(options.eta, "eta"),
            timeout_us=task.timeout_us if options.timeout is msgspec.UNSET else check_timeout(options.timeout),
            unique_key=None if options.unique_key is None else check_key(options.unique_key, "unique_key"),
            concurrency_key=concurrency_key,
            fair_key=fair_key,
            group=task.group(fair_key, concurrency_key),
            tags=task.tags if not options.tags else (*task.tags, *check_tags(options.tags)),
        )

    def _policy(self, task: TaskDef, queue_name: str, options: Options) -> FrozenPolicy:
        own = options.retry is not None or options.max_retries is not msgspec.UNSET or options.max_age is not msgspec.UNSET
        if own:
            return self._freeze(task, queue_name, options)
        key = (task.name, queue_name)
        known = self._frozen.get(key)
        if known is None or known[0] is not task.retry:  # a task that was registered anew may have another policy
            if len(self._frozen) >= KNOWN_MAX:  # names may come from callers
                self._frozen.clear()
            known = self._frozen[key] = (task.retry, self._freeze(task, queue_name, options))
        return known[1]

    def _freeze(self, task: TaskDef, queue_name: str, options: Options) -> FrozenPolicy:
        """Job over task over queue over app, field by field; then only the numbers of it."""
        check_retry(options.retry)
        job_level = RetryPolicy(max_retries=options.max_retries, max_age=options.max_age)
        queue = self._queues.get(queue_name)
        policy = merged(job_level, options.retry, task.retry, queue.retry if queue else None, self._base).resolved()
        return FrozenPolicy(freeze(policy), policy.max_retries, policy.max_age_us)


def build_schedule(job: NewJob, interval: float, name: str, missed: Missed) -> Schedule:
    """The schedule that makes such a job at every tick."""
    interval_us = seconds_to_us(interval, "interval")
    if interval_us < INTERVAL_MIN_US:
        raise BadSetting(f"interval must be at least {INTERVAL_MIN_US / 1e6} seconds, not {shown(interval)}")
    if missed not in MISSED:
        raise BadSetting(f"missed must be one of {', '.join(MISSED)}, not {shown(missed)}")
    if job.eta_us is not None or job.delay_us or job.unique_key is not None:
        raise BadSetting("a schedule's jobs take no delay, eta or unique_key: each tick makes its own job, due at once")
    return Schedule(name=check_name(name, "schedule"), job=job, interval_us=interval_us, missed=missed)
