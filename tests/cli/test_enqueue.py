from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan import Job, Mulligan
from mulligan.core.ids import is_id
from tests.cli.conftest import Run, Shop

MODULE = """
from mulligan import Mulligan, RetryPolicy

app = Mulligan("sqlite:///shop.db", retry=RetryPolicy(max_retries=7))

@app.task(queue="billing")
async def charge(invoice: int, currency: str = "EUR") -> None: ...

nothing = 1
"""


@pytest.fixture
def module(folder: Path) -> Any:
    """A program in the working directory, under a name no other test has imported."""
    (folder / f"m{abs(hash(str(folder)))}.py").write_text(MODULE)
    return f"m{abs(hash(str(folder)))}"


def job_of(url: str, job_id: str) -> Job:
    import asyncio

    async def read() -> Job:
        async with Mulligan(url) as app:
            return await app.get(job_id)

    return asyncio.run(read())


def stored(run: Run, *arguments: str) -> Job:
    """Enqueues by a command, which must succeed, and reads the job."""
    answer = run("enqueue", *arguments)
    assert answer.code == 0, answer.err
    return job_of("sqlite:///mulligan.db", answer.out.strip())


def test_enqueue_prints_the_id_and_creates_the_store(run: Run, folder: Path) -> None:
    """A task nobody registered here is taken on trust, with default settings."""
    answer = run("enqueue", "charge", "42")
    assert answer.code == 0
    assert is_id(answer.out.strip())
    job = job_of("sqlite:///mulligan.db", answer.out.strip())
    assert (job.task, job.args, job.kwargs, job.queue, job.max_retries) == ("charge", [42], {}, "default", 3)


@pytest.mark.parametrize(
    "typed, value",
    [
        ("42", 42),
        ("4.5", 4.5),
        ("true", True),
        ("null", None),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
        ('"42"', "42"),
        ('"a=b"', "a=b"),
        ("hello world", "hello world"),
        ("NaN", "NaN"),
        ("", ""),
        ("==", "=="),
        ("2=3", "2=3"),
    ],
)
def test_an_argument_is_json_or_text(run: Run, typed: str, value: object) -> None:
    """What is JSON is decoded, what is not stays text."""
    assert stored(run, "work", typed).args == [value]


def test_arguments_by_name(run: Run) -> None:
    """name=value and --kwargs are passed by name, each once."""
    job = stored(run, "work", "1", "a=2", "b=x=y", "--kwargs", '{"c": [3]}')
    assert (job.args, job.kwargs) == ([1], {"a": 2, "b": "x=y", "c": [3]})
    assert run("enqueue", "work", "c=1", "--kwargs", '{"c": 3}').code == 2
    assert run("enqueue", "work", "--kwargs", "[1]").code == 2
    assert "not JSON" in run("enqueue", "work", "--kwargs", "{").err


def test_every_option_reaches_the_job(run: Run) -> None:
    """Each option ends up in the field it is named after."""
    options = "--delay 60 --priority 2 --unique-key k --max-age 3600 --max-retries 9 --timeout 5 --queue q --tag a --tag b"
    job = stored(run, "work", *options.split(), "--fair-key", "tenant", "--concurrency-key", "invoice")
    assert job.run_at_us is not None
    assert job.run_at_us - job.created_at_us == 60_000_000
    assert (job.priority, job.unique_key, job.max_age, job.max_retries, job.timeout) == (2, "k", 3600, 9, 5)
    assert (job.queue, job.tags) == ("q", ("a", "b"))
    assert (job.fair_key, job.concurrency_key) == ("tenant", "invoice")


def test_no_limit_is_a_value(run: Run) -> None:
    """The word none stands for no limit; other words are refused."""
    job = stored(run, "work", "--timeout", "none", "--max-retries", "none", "--max-age", "60")
    assert (job.timeout, job.max_retries) == (None, None)
    assert run("enqueue", "work", "--timeout", "soon").code == 2


def test_an_absolute_time(run: Run) -> None:
    """--eta takes a time with its zone, and nothing else."""
    job = stored(run, "work", "--eta", "2030-01-31T12:00:00+01:00")
    assert job.run_at is not None
    assert job.run_at.isoformat() == "2030-01-31T11:00:00+00:00"
    assert "aware" in run("enqueue", "work", "--eta", "2030-01-31T12:00:00").err
    assert "ISO 8601" in run("enqueue", "work", "--eta", "tomorrow").err


def test_a_taken_unique_key_answers_the_first_job(run: Run) -> None:
    """The id is that of the first, created is false, and a person is told."""
    first = run("enqueue", "work", "--unique-key", "k", "--json").json
    second = run("enqueue", "work", "--unique-key", "k", "--json").json
    assert (first["created"], second["created"]) == (True, False)
    assert first["id"] == second["id"]
    assert "no new one was made" in run("enqueue", "work", "--unique-key", "k").err


def test_an_interval_stores_a_schedule(run: Run, folder: Path) -> None:
    """A schedule is told by name, interval and next run, and its name can be chosen."""
    document = run("enqueue", "check", "--interval", "300", "--name", "nightly", "--missed", "skip", "--json").json
    assert (document["schedule"], document["interval"]) == ("nightly", 300.0)
    assert document["next_run"]
    assert "schedule check: every 5 s" in run("enqueue", "check", "--interval", "5").out
    assert run("enqueue", "check", "--name", "x").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["bad name!"],
        ["work", "--priority", "3"],
        ["work", "--delay", "-1"],
        ["work", "--delay", "1", "--eta", "2030-01-01T00:00:00Z"],
        ["work", "--timeout", "0"],
    ],
)
def test_bad_input_is_refused_in_one_line(run: Run, folder: Path, arguments: list[str]) -> None:
    """Nothing is stored, the exit code is 2, and no traceback is shown."""
    answer = run("enqueue", *arguments)
    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert not (folder / "mulligan.db").exists()


def test_a_missing_folder_is_told(run: Run) -> None:
    """The folder is named, with what to do."""
    answer = run("enqueue", "work", "--store", "sqlite:///nowhere/jobs.db")
    assert answer.code == 2
    assert "does not exist" in answer.err


def test_an_app_checks_the_task_and_brings_its_store(run: Run, module: str, folder: Path) -> None:
    """With --app the store, the queue and the policy are the app's, and so are the checks."""
    answer = run("enqueue", "charge", "42", "--app", f"{module}:app")
    assert answer.code == 0, answer.err
    job = job_of("sqlite:///shop.db", answer.out.strip())
    assert (job.queue, job.max_retries) == ("billing", 7)
    wrong = run("enqueue", "charge", "42", "EUR", "more", "--app", f"{module}:app", "--json")
    assert wrong.code == 2
    assert wrong.json["error"]["type"] == "WrongArguments"
    assert run("enqueue", "nope", "--app", f"{module}:app", "--json").json["error"]["type"] == "UnknownTask"
    assert not (folder / "mulligan.db").exists()


def test_a_named_store_wins_over_the_apps(run: Run, module: str, folder: Path) -> None:
    """--store replaces the app's own store."""
    answer = run("enqueue", "charge", "1", "--app", f"{module}:app", "--store", "sqlite:///other.db")
    assert answer.code == 0
    assert job_of("sqlite:///other.db", answer.out.strip()).queue == "billing"


@pytest.mark.parametrize(
    "target, words",
    [
        ("{module}:nope", "it has {module}:app"),
        ("{module}:nothing", "is a int, not a Mulligan app"),
        ("{module}", "give MODULE:APP"),
        ("{module}:", "give MODULE:APP"),
        ("no.such.module:app", "no module 'no'"),
        ("../{module}:app", "give MODULE:APP"),
    ],
)
def test_a_wrong_app_is_told_clearly(run: Run, module: str, target: str, words: str) -> None:
    """Each way to miss the app has its own words, in one line."""
    answer = run("enqueue", "charge", "1", "--app", target.format(module=module))
    assert answer.code == 2
    assert words.format(module=module) in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    "code, words",
    [("import not_there_at_all", "needs the module 'not_there_at_all'"), ("1 / 0", "ZeroDivisionError"), ("def (", "SyntaxError")],
)
def test_a_program_that_cannot_be_imported_is_told(run: Run, folder: Path, code: str, words: str) -> None:
    """The error of the user's own code is named with its place, without our traceback."""
    name = f"b{abs(hash(str(folder)))}"
    (folder / f"{name}.py").write_text(f"x = 1\n{code}\n")
    answer = run("enqueue", "work", "--app", f"{name}:app")
    assert answer.code == 2
    assert words in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_store_of_one_process_is_refused(run: Run) -> None:
    """A job in memory:// would be gone with the command."""
    assert run("enqueue", "work", "--store", "memory://").code == 2


def test_the_queue_is_seen_by_others(run: Run, shop: Shop) -> None:
    """A job enqueued by a command is run by a worker of another app."""
    job_id = run("enqueue", "fine", "7").out.strip()
    shop.work()
    assert run("show", job_id, "--json").json["result"] == 7
