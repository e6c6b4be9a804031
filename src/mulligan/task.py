"""Task: what `@app.task` makes of a function. Typed end to end: `enqueue` takes the function's own arguments."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from mulligan.core.job import Job, NewJob
from mulligan.handle import Handle
from mulligan.request import PLAIN, Options
from mulligan.sync import SyncTask
from mulligan.worker.context import Context
from mulligan.worker.registry import TaskDef

if TYPE_CHECKING:
    from mulligan.app import Mulligan

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")  # what a plain call returns: the result, or a coroutine of it


class TaskCall(Generic[P, R]):
    """A task together with options for its next jobs; made by `task.options(...)`."""

    def __init__(self, app: Mulligan, definition: TaskDef, options: Options) -> None:
        self._app = app
        self.definition = definition
        self._options = options

    @property
    def name(self) -> str:
        return self.definition.name

    def options(self, **options: Any) -> TaskCall[P, R]:
        """The same task with other options: delay, eta, priority, queue, unique_key, fair_key, concurrency_key, max_age and so on."""
        return TaskCall(self._app, self.definition, self._options.with_more(options))

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job such a call makes, not yet stored: for `app.enqueue_many`."""
        return self._app.build(self.definition, args, kwargs, self._options)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Stores a job that will call the task with these arguments."""
        [handle] = await self._app.enqueue_many([self.job(*args, **kwargs)])
        return cast("Handle[R]", handle)

    async def enqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same in the open transaction of a connection of yours: the job exists if and when you commit. See `app.enqueue_in`."""
        [handle] = await self._app.enqueue_in(connection, [self.job(*args, **kwargs)])
        return cast("Handle[R]", handle)

    @property
    def sync(self) -> SyncTask[P, R]:
        """The same, for code without an event loop."""
        return SyncTask(self._app.sync, self)


class Task(TaskCall[P, R], Generic[P, R, C]):
    """A registered task. Calling it runs the function inline, without the queue."""

    def __init__(self, app: Mulligan, definition: TaskDef) -> None:
        super().__init__(app, definition, PLAIN)
        self.__name__ = definition.name
        self.__doc__ = getattr(definition.function, "__doc__", None)
        self.__wrapped__ = definition.function

    def __repr__(self) -> str:
        return f"<task {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        function = self.definition.function
        assert function is not None
        if self.definition.wants_context:
            return cast("C", function(Context(self._inline_job(args, kwargs), self._app.state), *args, **kwargs))
        return cast("C", function(*args, **kwargs))

    def _inline_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        return self._app.inline_job(self._app.build(self.definition, args, kwargs, self._options))


class TaskDecorator(Protocol):
    """The type of `@app.task(...)`: keeps the function's signature, without the context."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
