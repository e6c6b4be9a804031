"""Function paths: only below an allowed prefix, only functions of that module itself, and never a walk to something else."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mulligan import BadSetting, Mulligan, UnknownTask
from tests.virtual import Stage, play

MODULE = "mulligan_test_jobs"
SOURCE = '''
"""A module of jobs, as a user would write it."""
import builtins
import os
import subprocess
from os import system

ran = []

def work(number):
    ran.append(number)
    return number + 1

async def later(number):
    ran.append(number)
    return number * 2

def _hidden(number):
    ran.append(number)

class Thing:
    def method(self):
        ran.append("method")

alias = len
borrowed = os.path.join
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An importable module that nothing has imported yet, and a second one that cannot be imported."""
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    (tmp_path / f"{MODULE}_broken.py").write_text("raise RuntimeError('this module is broken')\n")
    (tmp_path / f"{MODULE}_exits.py").write_text("raise SystemExit(7)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield MODULE
    for name in [name for name in sys.modules if name.startswith(MODULE)]:
        del sys.modules[name]


REFUSED = [
    "os.system",
    "builtins.eval",
    "builtins:eval",
    "subprocess.run",
    f"{MODULE}_other.work",
    f"{MODULE}other.work",
    f"{MODULE}",
    "work",
    f"{MODULE}._hidden",
    f"{MODULE}.__import__",
    f"{MODULE}.__builtins__.eval",
    f"{MODULE}._private.work",
    f"{MODULE}.Thing.__init__",
    f"{MODULE}..work",
    f".{MODULE}.work",
    f"{MODULE}.work.",
    f"{MODULE}.wo rk",
    f"{MODULE}.work()",
    f"{MODULE}/work.x",
    f"{MODULE}.work\n",
    "",
    ".",
    ":",
    "../x.y",
]


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_below_an_allowed_prefix_is_refused(url: str, module: str, name: str) -> None:
    """Such a name is refused at the door with what to do, nothing is stored, and nothing is imported to find out."""
    async with Mulligan(url, allow_paths=[module]) as app:
        before = set(sys.modules)
        with pytest.raises(UnknownTask, match="register it with @app.task"):
            await app.enqueue(name, args=[1])
        assert app.registry.get(name) is None
        assert set(sys.modules) == before
        assert [job async for job in app.jobs()] == []


@pytest.mark.parametrize(
    "name",
    [
        f"{MODULE}.system",
        f"{MODULE}.os.system",
        f"{MODULE}.builtins.eval",
        f"{MODULE}.subprocess.run",
        f"{MODULE}:os.system",
        f"{MODULE}.Thing",
        f"{MODULE}.Thing.method",
        f"{MODULE}.alias",
        f"{MODULE}.borrowed",
        f"{MODULE}.ran",
        f"{MODULE}.ran.append",
        f"{MODULE}.nosuch",
        f"{MODULE}.nosuch.work",
        f"{MODULE}.os.path.join",
    ],
)
def test_a_walk_through_an_allowed_module_reaches_nothing(backend: str, tmp_path: Path, module: str, name: str) -> None:
    """What a module merely imported, its classes and other values never run: the job is given back, as with any unknown task."""

    async def scene(stage: Stage) -> None:
        handle = await stage.app.enqueue(name, args=["true"])
        async with stage.worker() as worker:
            await asyncio.sleep(5)
            job = await handle.job()
            assert (job.status, job.attempts, job.failures, job.releases) == ("pending", 0, 0, 1)
            assert worker.executor.unknown_tasks == {name}
        assert stage.app.registry.get(name) is None

    play(backend, tmp_path, scene, allow_paths=[module])
    assert sys.modules[module].ran == []


def test_a_function_below_an_allowed_prefix_runs(backend: str, tmp_path: Path, module: str) -> None:
    """Sync and async functions that the module itself defines run by their path; enqueueing does not import it."""

    async def scene(stage: Stage) -> None:
        one = await stage.app.enqueue(f"{module}.work", args=[1])
        two = await stage.app.enqueue(f"{module}.later", args=[2], queue="default")
        assert module not in sys.modules
        async with stage.worker() as worker:
            await worker.drain()
        assert (await one.result(), await two.result()) == (2, 4)

    play(backend, tmp_path, scene, allow_paths=[module])


@pytest.mark.parametrize("ending", ["broken", "exits"])
def test_a_module_that_cannot_be_imported_does_not_stop_the_worker(backend: str, tmp_path: Path, module: str, ending: str) -> None:
    """The job is given back like one of an unknown task, and the worker runs the next one."""

    async def scene(stage: Stage) -> None:
        bad = await stage.app.enqueue(f"{module}_{ending}.work", args=[1])
        async with stage.worker(concurrency=1) as worker:
            await asyncio.sleep(1)
            good = await stage.app.enqueue(f"{module}.work", args=[1])
            assert await good.result(timeout=10) == 2
            job = await bad.job()
            assert (job.status, job.attempts, job.releases) == ("pending", 0, 1)
            assert f"{module}_{ending}.work" in worker.executor.unknown_tasks

    play(backend, tmp_path, scene, allow_paths=[module, f"{module}_{ending}"])


async def test_without_allowed_prefixes_no_path_is_known() -> None:
    """An app that allows none refuses every path."""
    app = Mulligan("memory://")
    with pytest.raises(UnknownTask, match="allow_paths"):
        await app.enqueue("os.getcwd")


@pytest.mark.parametrize("prefix", ["", ".", "os system", "x\n", 5])
def test_a_malformed_prefix_is_refused(prefix: object) -> None:
    """An allowed prefix is a module's name; an empty one would allow everything."""
    with pytest.raises(BadSetting, match="allow_paths"):
        Mulligan("memory://", allow_paths=[prefix])  # type: ignore[list-item]


def test_a_single_text_is_not_a_list_of_prefixes() -> None:
    """allow_paths="os" would allow the modules o and s; it is refused."""
    with pytest.raises(BadSetting, match="allow_paths"):
        Mulligan("memory://", allow_paths="os")


async def test_a_stored_path_that_is_not_allowed_here_does_not_run(tmp_path: Path, module: str) -> None:
    """What the worker's own app does not allow stays where it is, whoever stored it."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Mulligan(url, allow_paths=["os"]) as producer:
        handle = await producer.enqueue("os.system", args=[f"touch {tmp_path}/ran"])
    async with Mulligan(url, allow_paths=[module]) as app:
        async with app.worker(queues=["default"], poll=0.01):
            while (job := await app.get(handle.id)).releases == 0:
                await asyncio.sleep(0.01)
        assert (job.status, job.attempts) == ("pending", 0)
    assert not os.path.exists(tmp_path / "ran")
