"""Registering: names, duplicates, include, hooks and middleware."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mulligan import BadSetting, Context, Downstream, Mulligan, Queue, Rate, RetryBudget, RetryPolicy, WrongArguments
from tests.virtual import Stage, play


def nothing() -> None: ...
def two(a: int, b: int) -> None: ...
def one_or_three(a: int, b: int = 0, c: int = 0) -> None: ...
def by_place_only(a: int, b: int = 0, /) -> None: ...
def any_number(a: int, *rest: int) -> None: ...
def named(a: int, *, b: int) -> None: ...
def named_with_default(a: int, *, b: int = 0) -> None: ...
def any_name(a: int, **rest: int) -> None: ...


@pytest.mark.parametrize("function", [nothing, two, one_or_three, by_place_only, any_number, named, named_with_default, any_name])
@pytest.mark.parametrize("kwargs", [{}, {"b": 1}], ids=["by place", "with a name"])
def test_arguments_are_judged_as_python_does(function: Callable[..., None], kwargs: dict[str, int]) -> None:
    """Whatever a function takes, a call of it is refused exactly where Python would refuse it."""
    task = Mulligan("memory://").task(function)
    for number in range(5):
        args = range(number)
        try:
            function(*args, **kwargs)
        except TypeError:
            with pytest.raises(WrongArguments):
                task.job(*args, **kwargs)
        else:
            assert task.job(*args, **kwargs).task == function.__name__


def test_a_task_that_is_registered_again_makes_other_jobs() -> None:
    """A reloaded module may have other settings; jobs made from then on have these, also with no options."""
    app = Mulligan("memory://")
    assert app.task(queue="before")(two).job(1, 2).queue == "before"
    again = app.task(queue="after", priority=2)(two)
    job = again.job(1, 2)
    assert (job.queue, job.priority) == ("after", 2)


def test_two_tasks_of_one_name_are_refused() -> None:
    """The message names both functions and says what to do; the first one stays."""
    app = Mulligan("memory://")

    @app.task(name="work")
    def one() -> int:
        return 1

    with pytest.raises(BadSetting, match=r"two tasks are named 'work' .*one.* and .*two.*@app.task\(name=") as caught:

        @app.task(name="work")
        def two() -> int:
            return 2

    assert "one" in str(caught.value)
    found = app.registry.get("work")
    assert found is not None
    assert found.function is not None
    assert found.function() == 1


def test_the_same_function_again_is_a_reload() -> None:
    """A module that is imported twice registers the same function again: the newest one counts, with its settings."""
    app = Mulligan("memory://")

    def register(number: int) -> None:
        @app.task(queue=f"q{number}", retry=RetryPolicy(max_retries=number))
        def work() -> int:
            return number

        assert work.options(queue="q").job().max_retries == number

    register(1)
    register(2)
    found = app.registry.get("work")
    assert found is not None
    assert (found.queue, found.function and found.function()) == ("q2", 2)


async def test_declared_first_then_registered_or_the_other_way_round(app: Mulligan) -> None:
    """A declaration never replaces a function, and a function replaces a declaration."""
    app.declare("work", queue="declared")
    assert app.registry.get("work") is None

    @app.task(queue="real")
    def work() -> None: ...

    app.declare("work", queue="declared")
    assert (await (await app.enqueue("work")).job()).queue == "real"


def scale(number: int, factor: int) -> int:
    return number * factor


def test_what_can_be_a_task() -> None:
    """Functions, partials with a name and objects with __call__ can; what cannot be called is refused."""
    app = Mulligan("memory://")

    class Doubler:
        async def __call__(self, number: int) -> int:
            return 2 * number

    app.task(name="partial")(functools.partial(scale, factor=2))
    app.task(name="object")(Doubler())
    found = app.registry.get("object")
    assert found is not None
    assert found.is_async
    with pytest.raises(BadSetting, match="cannot be read; make it a task through a function of your own"):
        app.task(name="builtin")(int)
    with pytest.raises(BadSetting, match="must be a function"):
        app.task("not a function")  # type: ignore[call-overload]
    with pytest.raises(BadSetting, match="task"):
        app.task(lambda: None)  # "<lambda>" is no name to store


def test_the_queues_an_app_knows() -> None:
    """Those of its tasks, declared or not, those it configured, and the default one."""
    app = Mulligan("memory://")
    app.declare("a", queue="of-declared")
    app.task(name="b", queue="of-task")(lambda: None)
    app.queues(Queue("of-setting"))
    assert app.queue_names() == ["default", "of-declared", "of-setting", "of-task"]


@pytest.mark.parametrize("queue", [None, "name", {"name": "x"}])
def test_queues_takes_queue_values(queue: object) -> None:
    """Anything but Queue(...) is refused."""
    with pytest.raises(BadSetting, match=r"takes Queue\(\.\.\.\)"):
        Mulligan("memory://").queues(queue)  # type: ignore[arg-type]


@pytest.mark.parametrize("downstream", [None, "bank", Queue("bank")])
def test_downstreams_takes_downstream_values(downstream: object) -> None:
    """Anything but Downstream(...) is refused."""
    with pytest.raises(BadSetting, match=r"takes Downstream\(\.\.\.\)"):
        Mulligan("memory://").downstreams(downstream)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"depends_on": ""}, "depends_on"),
        ({"depends_on": "no name!"}, "depends_on"),
        ({"depends_on": Downstream("bank")}, "depends_on"),
        ({"rate": 5}, "rate must be a Rate"),
        ({"rate": "5/s"}, "rate must be a Rate"),
        ({"budget": Rate(per_s=5)}, "budget must be a RetryBudget"),
        ({"budget": RetryBudget(ratio=0.2, each_tenant=True)}, "each_tenant belongs to the budget of a queue"),
        ({"budgte": None}, "unknown task setting budgte; known: name, queue.*depends_on, rate, budget"),
    ],
    ids=str,
)
def test_settings_of_a_task_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    """Where it is registered or declared, not at its first job; nothing is registered then."""
    app = Mulligan("memory://")
    with pytest.raises(BadSetting, match=words):
        app.task(name="work", **settings)(lambda: None)
    with pytest.raises(BadSetting, match=words):
        app.declare("work", **settings)
    assert list(app.registry) == []


def test_include_imports_a_module_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that decorates with the app registers its tasks when included; a missing one is an ImportError."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "included_app.py").write_text("from mulligan import Mulligan\napp = Mulligan('memory://')\n")
    (tmp_path / "included_tasks.py").write_text("from included_app import app\n@app.task\ndef found(): ...\n")
    try:
        import included_app  # type: ignore[import-not-found]

        app: Mulligan = included_app.app
        assert app.registry.get("found") is None
        app.include("included_tasks")
        assert app.registry.get("found") is not None
        app.include("included_tasks")
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            app.include("no_such_module")
    finally:
        for name in ("included_app", "included_tasks"):
            sys.modules.pop(name, None)


def test_hooks_run_per_worker_and_in_order(backend: str, tmp_path: Path) -> None:
    """Start-up hooks run in order before the first claim, shutdown hooks after the last outcome; the decorator keeps the function."""
    trail: list[str] = []

    async def scene(stage: Stage) -> None:
        app = stage.app

        @app.on_startup
        async def one() -> None:
            trail.append("up 1")
            app.state.number = 41

        @app.on_startup
        def two() -> None:
            trail.append("up 2")

        @app.on_shutdown
        def three() -> None:
            trail.append("down")

        @app.task
        async def work(ctx: Context) -> int:
            trail.append("work")
            return int(ctx.state.number) + 1

        two()
        handle = await work.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
        async with stage.worker():
            pass
        assert await handle.result() == 42

    play(backend, tmp_path, scene)
    assert trail == ["up 2", "up 1", "up 2", "work", "down", "up 1", "up 2", "down"]


def test_a_start_up_hook_that_fails_stops_the_start(backend: str, tmp_path: Path) -> None:
    """Its error comes out of `async with app.worker()`, nothing was claimed, and a later start may succeed."""

    async def scene(stage: Stage) -> None:
        broken = [True]

        @stage.app.on_startup
        def hook() -> None:
            if broken:
                raise ConnectionError("no database")

        @stage.app.task
        async def work() -> str:
            return "ran"

        handle = await work.enqueue()
        worker = stage.worker()
        with pytest.raises(ConnectionError, match="no database"):
            await worker.start()
        assert (await handle.job()).fence == 0
        broken.clear()
        async with worker:
            assert await handle.result(timeout=10) == "ran"

    play(backend, tmp_path, scene)


def test_middleware_may_replace_short_cut_and_fail(backend: str, tmp_path: Path) -> None:
    """What middleware returns is the result, an error of it is the attempt's error, and it need not call the handler."""

    async def scene(stage: Stage) -> None:
        ran: list[str] = []

        @stage.app.use
        async def layer(ctx: Context, call_next: Any) -> Any:
            if ctx.job.args == ["skip"]:
                return "skipped"
            if ctx.job.args == ["break"]:
                raise RuntimeError("in the middle")
            return f"<{await call_next()}>"

        @stage.app.task(name="sync")
        def one(word: str) -> str:
            ran.append(word)
            return word

        @stage.app.task(name="async")
        async def two(word: str) -> str:
            ran.append(word)
            return word

        skipped, broken = await one.enqueue("skip"), await two.options(max_retries=0).enqueue("break")
        plain = [await one.enqueue("a"), await two.enqueue("b")]
        async with stage.worker() as worker:
            await worker.drain()
        assert await skipped.result() == "skipped"
        assert [await handle.result() for handle in plain] == ["<a>", "<b>"]
        error = (await broken.job()).last_error
        assert error is not None
        assert error.message == "in the middle"
        assert sorted(ran) == ["a", "b"]

    play(backend, tmp_path, scene)
