"""The tasks a process knows. Only what stands here can run: a payload can never name code of its own choosing."""

from __future__ import annotations

import importlib
import inspect
import logging
import typing
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import msgspec

from mulligan.core.codec import check_name
from mulligan.core.errors import BadSetting, UnknownTask, WrongArguments, shown
from mulligan.core.groups import TASK, group_of
from mulligan.core.limits import Limit
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.retry import RetryPolicy
from mulligan.worker.context import Context

log = logging.getLogger("mulligan.registry")
DEFAULT_QUEUE = "default"


class TaskDef(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A task: its function (None where it was only declared, to be enqueued by name) and its defaults."""

    name: str
    function: Callable[..., Any] | None
    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy | None = None
    timeout_us: int | None = 900 * 1_000_000
    priority: int = 0
    tags: tuple[str, ...] = ()
    depends_on: str | None = None  # the downstream whose breaker and budget its jobs obey
    rate: Rate | None = None
    budget: RetryBudget | None = None
    is_async: bool = False
    wants_context: bool = False
    signature: inspect.Signature | None = None  # without the context
    by_place: range = range(0)  # how many arguments it takes, where they are given by their places alone

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What claims must keep for the jobs of this task, in whatever queue they are."""
        found: list[Limit] = []
        if self.rate is not None:
            found.append(self.rate.bucket(f"rate:task:{self.name}", part=TASK, value=self.name))
        if self.budget is not None:
            found.append(self.budget.bucket(f"budget:task:{self.name}", part=TASK, value=self.name))
        return tuple(found)

    def group(self, fair_key: str | None, concurrency_key: str | None) -> str | None:
        """The group of a job of this task with these keys."""
        is_limited = self.rate is not None or self.budget is not None
        return group_of(fair_key, self.depends_on, self.name if is_limited else None, concurrency_key)

    def check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises WrongArguments unless the function could be called with these."""
        if self.signature is None or (not kwargs and len(args) in self.by_place):
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise WrongArguments(f"{self.name}{self.signature}: {problem}") from None


def define(name: str | None, function: Callable[..., Any], **defaults: Any) -> TaskDef:
    """The definition of a task from its function: whether it is async, wants the context, and what it can be called with."""
    if not callable(function):
        raise BadSetting(f"a task must be a function, not {shown(function)}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise BadSetting(f"the arguments of {shown(function)} cannot be read; make it a task through a function of your own") from None
    parameters = list(signature.parameters.values())
    wants_context = bool(parameters) and _is_context(function, parameters[0])
    if wants_context:
        signature = signature.replace(parameters=parameters[1:])
    return TaskDef(
        name=check_name(name or getattr(function, "__name__", None), "task"),
        function=function,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)),  # noqa: B004
        wants_context=wants_context,
        signature=signature,
        by_place=_by_place(signature),
        **defaults,
    )


def _by_place(signature: inspect.Signature) -> range:
    """How many arguments can be given by their places alone; binding them, as anything else has to be, takes longer than the rest of
    making a job."""
    least = most = 0
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            return range(0)
        most += 1
        if parameter.default is parameter.empty:
            least = most
    return range(least, most + 1)


def _is_context(function: Callable[..., Any], first: inspect.Parameter) -> bool:
    """Whether the first parameter is annotated as Context, also when annotations are kept as text."""
    if first.annotation is Context:
        return True
    if isinstance(first.annotation, str):
        try:
            return typing.get_type_hints(function).get(first.name) is Context
        except Exception:  # noqa: BLE001 - a name that only exists for type checkers: judge by the text
            return first.annotation.split(".")[-1] == "Context"
    return False


class Registry:
    """Name to definition. Function paths are importable only below an allow-listed module prefix."""

    def __init__(self, allow_paths: Sequence[str] = ()) -> None:
        if isinstance(allow_paths, str):
            raise BadSetting(f"allow_paths must be a list of module names, such as [{shown(allow_paths)}], not one text")
        self._tasks: dict[str, TaskDef] = {}
        self._limits: tuple[Limit, ...] | None = None  # made when they are asked for
        self._allowed = tuple(check_name(prefix, "allow_paths entry") for prefix in allow_paths)

    def add(self, task: TaskDef) -> None:
        """Registers a task; a name can be taken only once, except by the same function again (a reloaded module)."""
        known = self._tasks.get(task.name)
        if known is not None and known.function is not None and task.function is not None and not _same(known, task):
            raise BadSetting(
                f"two tasks are named {task.name!r} ({_where(known)} and {_where(task)}); "
                "give one of them another name: @app.task(name=...)"
            )
        if known is None or task.function is not None:
            self._tasks[task.name] = task
            self._limits = None

    def limits(self) -> tuple[Limit, ...]:
        """The limits of all tasks. Every claim keeps them, and there may be hundreds of tasks, so they are put together once."""
        if self._limits is None:
            self._limits = tuple(limit for task in self._tasks.values() for limit in task.limits)
        return self._limits

    def get(self, name: str) -> TaskDef | None:
        """The task that can run under this name in this process, or None."""
        task = self._tasks.get(name)
        if task is None and self._is_allowed(name):
            task = self._import(name)
        return task if task is not None and task.function is not None else None

    def need(self, name: str) -> TaskDef:
        """The task to enqueue under this name; UnknownTask with what to do otherwise."""
        if not isinstance(name, str):
            raise UnknownTask(f"a task is named by a text, not by {shown(name)}; pass its name, or call its own enqueue")
        task = self._tasks.get(name)
        if task is None and self._is_allowed(name):
            # The producer need not be able to import what a worker will run.
            return TaskDef(name=name, function=None)
        if task is None:
            known = ", ".join(sorted(self._tasks)[:10]) or "none"
            raise UnknownTask(
                f"no task is named {shown(name)} (known: {known}); register it with @app.task, declare it with app.declare({shown(name)}), "
                "or allow its module with Mulligan(allow_paths=[...])"
            )
        return task

    def __iter__(self) -> typing.Iterator[TaskDef]:
        return iter(list(self._tasks.values()))

    def _is_allowed(self, name: str) -> bool:
        module, _, function = name.replace(":", ".").rpartition(".")
        parts = [*module.split("."), function]
        if not all(part.isidentifier() and not part.startswith("_") for part in parts):
            return False
        return any(module == prefix or module.startswith(prefix + ".") for prefix in self._allowed)

    def _import(self, name: str) -> TaskDef | None:
        module_name, _, function_name = name.replace(":", ".").rpartition(".")
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            return None
        except (Exception, SystemExit):  # a broken module is one more task that this process does not know
            log.exception("importing %s for the task %s failed", module_name, name)
            return None
        function = vars(module).get(function_name)
        # Only functions the module itself defines: what it merely imported (os.system, say) stays out of reach.
        if not isinstance(function, FunctionType) or function.__module__ != module_name:
            return None
        task = define(name, function)
        self._tasks[name] = task
        return task


def _same(one: TaskDef, other: TaskDef) -> bool:
    return _where(one) == _where(other)


def _where(task: TaskDef) -> str:
    function = task.function
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', '?')}"
