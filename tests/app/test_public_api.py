"""The public names, written out: whoever adds or removes one has to say so here."""

from __future__ import annotations

import subprocess
import sys

import mulligan

PUBLIC = [
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

APP = [
    "breakers",
    "build",
    "cancel",
    "claim",
    "close",
    "close_breaker",
    "configure",
    "configured",
    "declare",
    "downstreams",
    "enqueue",
    "enqueue_in",
    "enqueue_many",
    "events",
    "get",
    "include",
    "inline_job",
    "jobs",
    "metrics",
    "on_shutdown",
    "on_startup",
    "open",
    "open_breaker",
    "pause",
    "queue_names",
    "queues",
    "registry",
    "requeue",
    "reset_queue",
    "resume",
    "schedules",
    "state",
    "status",
    "store",
    "sync",
    "task",
    "use",
    "use_store",
    "worker",
]


def test_the_public_names_are_these() -> None:
    """mulligan.__all__ is exactly this list: adding or removing a public name must change it."""
    assert sorted(mulligan.__all__) == sorted(PUBLIC)


def test_a_star_import_brings_every_public_name() -> None:
    """Each listed name exists, and none of them is a module."""
    script = "from mulligan import *; import types; print(*sorted(n for n, v in globals().items() if not isinstance(v, types.ModuleType)))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert set(PUBLIC) <= set(answer.stdout.split())


def test_the_names_of_an_app_are_these() -> None:
    """What an app offers is exactly this list."""
    app = mulligan.Mulligan("memory://")
    assert sorted(name for name in dir(app) if not name.startswith("_")) == APP


def test_each_public_class_says_what_it_is() -> None:
    """Every public class has a docstring of its own."""
    classes = [thing for name in PUBLIC if isinstance(thing := getattr(mulligan, name), type)]
    assert [cls.__name__ for cls in classes if not vars(cls).get("__doc__")] == []
