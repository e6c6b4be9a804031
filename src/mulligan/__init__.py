"""mulligan: a durable job queue whose heart is what happens after a failure."""

from __future__ import annotations

from mulligan.app import Mulligan
from mulligan.core.errors import (
    BadPayload,
    BadPolicy,
    BadSetting,
    Cancel,
    Fail,
    IllegalMove,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobSignal,
    LeaseLost,
    MulliganError,
    ResultGone,
    Retry,
    SchemaMismatch,
    Snooze,
    StoreError,
    StoreRejected,
    StoreUnavailable,
    UnknownQueue,
    UnknownTask,
    UsageError,
    WrongArguments,
)
from mulligan.core.events import Event
from mulligan.core.job import ErrorInfo, HistoryRecord, Job, NewJob
from mulligan.handle import Handle, ScheduleHandle
from mulligan.lease import Lease
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.backoff import Constant, Custom, Delays, Exponential, Linear, Polynomial
from mulligan.policy.breaker import Breaker
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.downstream import Downstream
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Separate, Weighted
from mulligan.policy.queues import Queue
from mulligan.policy.retry import RetryPolicy
from mulligan.task import Task
from mulligan.version import VERSION as __version__
from mulligan.worker.context import Context
from mulligan.worker.worker import Worker

__all__ = [
    "Adaptive",
    "BadPayload",
    "BadPolicy",
    "BadSetting",
    "Breaker",
    "Cancel",
    "Constant",
    "Context",
    "Custom",
    "Delays",
    "Downstream",
    "ErrorInfo",
    "Event",
    "Exponential",
    "Fail",
    "Fifo",
    "FreshFirst",
    "Handle",
    "HistoryRecord",
    "IllegalMove",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobSignal",
    "Lease",
    "LeaseLost",
    "Linear",
    "Mulligan",
    "MulliganError",
    "NewJob",
    "Polynomial",
    "Queue",
    "Rate",
    "ResultGone",
    "Retry",
    "RetryBudget",
    "RetryFirst",
    "RetryPolicy",
    "ScheduleHandle",
    "SchemaMismatch",
    "Separate",
    "Snooze",
    "StoreError",
    "StoreRejected",
    "StoreUnavailable",
    "Task",
    "UnknownQueue",
    "UnknownTask",
    "UsageError",
    "Weighted",
    "Worker",
    "WrongArguments",
    "__version__",
]
