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
from mulligan.policy.backoff import Constant, Custom, Delays, Exponential, Linear, Polynomial
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Weighted
from mulligan.policy.queues import Queue
from mulligan.policy.retry import RetryPolicy
from mulligan.task import Task
from mulligan.version import VERSION as __version__
from mulligan.worker.context import Context
from mulligan.worker.worker import Worker

__all__ = [
    "BadPayload",
    "BadPolicy",
    "BadSetting",
    "Cancel",
    "Constant",
    "Context",
    "Custom",
    "Delays",
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
    "Linear",
    "Mulligan",
    "MulliganError",
    "NewJob",
    "Polynomial",
    "Queue",
    "ResultGone",
    "Retry",
    "RetryFirst",
    "RetryPolicy",
    "ScheduleHandle",
    "SchemaMismatch",
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
