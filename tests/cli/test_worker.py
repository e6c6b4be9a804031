"""`mulligan worker` as a process: what it prints, how it stops, and what becomes of the jobs it holds."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mulligan import IllegalMove, Job, Mulligan
from tests.cli.commands import Answer, ended, line_with, started

PROGRAM = """
import asyncio
import time

from mulligan import Mulligan, RetryPolicy

app = Mulligan("sqlite:///jobs.db", retry=RetryPolicy(max_retries=2))


def say(text):
    print(text, flush=True)


@app.task
async def quick(text):
    say(f"ran {text}")


@app.task(queue="other")
async def elsewhere():
    say("ran elsewhere")


@app.task
async def slow(seconds):
    say("slow begins")
    await asyncio.sleep(seconds)
    say("slow ends")


@app.task
def stubborn():
    say("stubborn begins")
    time.sleep(1_000)


@app.task
async def failing():
    raise ValueError("red\\x1b[31m\\nline")


@app.on_shutdown
def last_words():
    say("shut down")
"""
DYING = """
from mulligan.worker.fetcher import Fetcher


async def die(self):
    raise RuntimeError("a bug in a loop")


Fetcher.run = die
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program in it."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    return tmp_path


def on(folder: Path, name: str = "jobs.db") -> Mulligan:
    app = Mulligan(f"sqlite:///{folder / name}")
    for task in ("quick", "slow", "stubborn", "failing"):
        app.declare(task)
    app.declare("elsewhere", queue="other")
    return app


def enqueue(folder: Path, task: str, *args: Any, name: str = "jobs.db") -> str:
    """Stores a job for the worker, from this process."""

    async def put() -> str:
        async with on(folder, name) as app:
            return (await app.enqueue(task, args=args)).id

    return asyncio.run(put())


def job_of(folder: Path, job_id: str) -> Job:
    async def read() -> Job:
        async with on(folder) as app:
            return await app.get(job_id)

    return asyncio.run(read())


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> Answer:
    process.send_signal(number)
    return ended(process)


def test_it_tells_what_it_serves_and_runs_jobs(program: Path) -> None:
    """One line with store, queues, tasks and concurrency, a line per task with its policy; then it works, and stops at SIGTERM."""
    with started("worker", "shop:app", "--concurrency", "7", folder=program) as process:
        first = line_with(process, "worker ")
        assert "store sqlite:///jobs.db, queues default, other, 5 tasks, concurrency 7" in first
        assert "3 executions, waits about 1 s, 2 s" in line_with(process, "  quick: ")
        job_id = enqueue(program, "quick", "it")
        line_with(process, "ran it")
        answer = stop(process)
    assert answer.code == 0
    assert answer.out.endswith("shut down\n")
    assert job_of(program, job_id).status == "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_may_finish_within_the_grace_time(program: Path, number: int) -> None:
    """After the signal a running job ends by itself and is stored as done; nothing new is claimed."""
    running = enqueue(program, "slow", 0.5)
    with started("worker", "shop:app", "--concurrency", "1", folder=program) as process:
        line_with(process, "slow begins")
        waiting = enqueue(program, "quick", "late")
        answer = stop(process, number)
    assert answer.code == 0
    assert "slow ends" in answer.out
    assert "ran late" not in answer.out
    assert job_of(program, running).status == "done"
    job = job_of(program, waiting)
    assert (job.status, job.attempts) == ("pending", 0)


def test_what_does_not_finish_is_given_back_uncounted(program: Path) -> None:
    """Beyond the grace time the code is stopped, and the job is as if it had not been claimed."""
    job_id = enqueue(program, "slow", 1_000)
    with started("worker", "shop:app", "--grace", "0.2", folder=program) as process:
        line_with(process, "slow begins")
        answer = stop(process)
    assert answer.code == 0
    assert "slow ends" not in answer.out
    job = job_of(program, job_id)
    assert (job.status, job.view, job.attempts, job.releases, job.lane) == ("pending", "ready", 0, 1, "fresh")


def test_a_second_signal_cuts_the_grace_time(program: Path) -> None:
    """Somebody in a hurry does not have to wait for a long grace time; the job still goes back uncounted."""
    job_id = enqueue(program, "slow", 1_000)
    with started("worker", "shop:app", "--grace", "1000", folder=program) as process:
        line_with(process, "slow begins")
        process.send_signal(signal.SIGTERM)
        line_with(process, "stopping", err=True)
        answer = stop(process)
    assert answer.code == 0
    job = job_of(program, job_id)
    assert (job.status, job.attempts, job.releases) == ("pending", 0, 1)


def test_a_third_signal_ends_it_at_once(program: Path) -> None:
    """Nothing is waited for; what was held is left to its lease."""
    job_id = enqueue(program, "stubborn")
    with started("worker", "shop:app", "--grace", "1000", folder=program) as process:
        line_with(process, "stubborn begins")
        process.send_signal(signal.SIGTERM)
        line_with(process, "stopping", err=True)
        process.send_signal(signal.SIGTERM)
        line_with(process, "told to stop again", err=True)
        answer = stop(process)
    assert answer.code == 128 + signal.SIGTERM
    assert job_of(program, job_id).status == "processing"


def test_a_thread_that_does_not_obey_cannot_hold_the_process(program: Path) -> None:
    """The process ends with it; its job is not given back while its code may still run."""
    job_id = enqueue(program, "stubborn")
    with started("worker", "shop:app", "--grace", "0.1", folder=program) as process:
        line_with(process, "stubborn begins")
        answer = stop(process)
    assert answer.code == 0
    assert "ending the process with it" in answer.err
    job = job_of(program, job_id)
    assert (job.status, job.attempts) == ("processing", 1)


def test_only_the_named_queues_are_served(program: Path) -> None:
    """--queues limits what is claimed; a name no task uses is worth a warning, no name at all is an error."""
    skipped = enqueue(program, "quick", "never")
    enqueue(program, "elsewhere")
    with started("worker", "shop:app", "--queues", "other, typo", "--json", folder=program) as process:
        document = json.loads(line_with(process, "queues"))
        line_with(process, "ran elsewhere")
        answer = stop(process)
    assert document["queues"] == ["other", "typo"]
    assert document["pid"] == process.pid
    assert document["tasks"]["quick"].startswith("3 executions")
    assert "no task of this app belongs to queue 'typo'" in answer.err
    assert job_of(program, skipped).status == "pending"
    with started("worker", "shop:app", "--queues", ",", folder=program) as process:
        assert ended(process).code == 2


def test_a_named_store_replaces_the_apps(program: Path) -> None:
    """--store wins over what the program says; the program's own file is not even created."""
    enqueue(program, "quick", "from the other store", name="other.db")
    with started("worker", "shop:app", "--store", "sqlite:///other.db", folder=program) as process:
        line_with(process, "ran from the other store")
        assert stop(process).code == 0
    assert not (program / "jobs.db").exists()


def test_the_environment_does_not_replace_the_apps_store(program: Path) -> None:
    """MULLIGAN_STORE is for programs that name no store."""
    enqueue(program, "quick", "mine")
    with started("worker", "shop:app", folder=program, MULLIGAN_STORE="sqlite:///other.db") as process:
        line_with(process, "ran mine")
        assert stop(process).code == 0


def test_the_log_is_text_or_json(program: Path) -> None:
    """Both forms tell of a retry with its job, in one line each, without control characters."""
    for form in ([], ["--log-json"]):
        job_id = enqueue(program, "failing")
        with started("worker", "shop:app", "--log-level", "debug", *form, folder=program) as process:
            line = line_with(process, f"Task retry scheduled: {job_id}", err=True)
            answer = stop(process)
        assert answer.code == 0
        assert "\x1b" not in line + answer.err
        if form:
            assert json.loads(line)["job_id"] == job_id
            assert json.loads(line)["level"] == "debug"
        else:
            assert "Z DEBUG    mulligan.jobs: " in line


def test_a_hook_that_fails_is_told(program: Path) -> None:
    """A start-up hook that raises ends the process with 1 and its traceback in the log."""
    with (program / "shop.py").open("a") as file:
        file.write("\n@app.on_startup\ndef broken():\n    raise OSError('no database today')\n")
    with started("worker", "shop:app", folder=program) as process:
        answer = ended(process)
    assert answer.code == 1
    assert "no database today" in answer.err
    assert "hook" in answer.err


def test_a_loop_that_dies_ends_the_process(program: Path) -> None:
    """A worker that cannot work any more does not pretend to: exit code 1, so that whoever started it notices."""
    with (program / "shop.py").open("a") as file:
        file.write(DYING)
    with started("worker", "shop:app", folder=program) as process:
        answer = ended(process)
    assert answer.code == 1
    assert "a bug in a loop" in answer.err


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["shop:nope"], 2, "shop:app"),
        (["nope:app"], 2, "no module 'nope'"),
        (["shop:app", "--store", "sqlite:///nowhere/jobs.db"], 2, "does not exist"),
        (["shop:app", "--lease", "0"], 2, "lease"),
        (["shop:app", "--grace", "-1"], 2, "grace"),
        (["shop:app", "--concurrency", "0"], 2, "concurrency"),
        (["shop:nope", "--processes", "2"], 2, "shop:app"),
    ],
)
def test_what_cannot_start_says_why(program: Path, arguments: list[str], code: int, words: str) -> None:
    """A wrong app, store or setting ends at once, with one clear line and no traceback."""
    with started("worker", *arguments, folder=program) as process:
        answer = ended(process)
    assert answer.code == code
    assert words in answer.err
    assert "Traceback" not in answer.err


def test_a_file_of_a_newer_schema_is_refused(program: Path) -> None:
    """A worker of an older version does not touch the file: exit code 4."""
    enqueue(program, "quick", "x")
    with sqlite3.connect(program / "jobs.db") as connection:
        connection.execute("INSERT INTO mulligan_migrations VALUES (999, 'from the future', 'x', 0)")
    connection.close()
    with started("worker", "shop:app", "--json", folder=program) as process:
        answer = ended(process)
    assert answer.code == 4
    assert answer.json["error"]["type"] == "SchemaMismatch"


def test_an_app_takes_another_store_only_before_it_has_opened_its_own(tmp_path: Path) -> None:
    """use_store is refused once jobs may have gone to the first store."""

    async def swap() -> None:
        app = Mulligan(f"sqlite:///{tmp_path / 'one.db'}")
        app.use_store(f"sqlite:///{tmp_path / 'two.db'}")
        async with app:
            assert await app.status()
            with pytest.raises(IllegalMove, match="opened its store already"):
                app.use_store("memory://")

    asyncio.run(swap())
    assert not (tmp_path / "one.db").exists()
    assert (tmp_path / "two.db").exists()
