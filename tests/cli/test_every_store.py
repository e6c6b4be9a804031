"""Every command on every store that processes can share: the same answers, whatever the URL begins with."""

from __future__ import annotations

import asyncio
import re
import signal
import sqlite3
from pathlib import Path

import psycopg
import pytest

from mulligan import Mulligan
from mulligan.request import Options
from tests.cli.commands import ended, line_with, run_command, started
from tests.cli.conftest import make_app
from tests.conftest import BACKENDS, DURABLE, url_of
from tests.servers import Postgres, Redis, server_url

PROGRAM = """
from mulligan import Mulligan
app = Mulligan({url!r})

@app.task
async def fine(number):
    print(f"ran {{number}}", flush=True)
"""


@pytest.fixture(params=[name for name in BACKENDS if name in DURABLE])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    """An empty store that is not set up yet."""
    return url_of(request.param, folder)


def drain(url: str) -> None:
    """Runs what is there with the app of these tests."""

    async def work() -> None:
        async with make_app(url) as app, app.worker() as worker:
            await worker.drain()

    asyncio.run(work())


def test_a_job_from_command_to_command(url: str) -> None:
    """Enqueued, looked at, run, explained, sent back, cancelled; queues paused and resumed; all of it told in JSON."""
    assert run_command("migrate", "--store", url, "--json").code == 0
    assert run_command("migrate", "--plan", "--store", url, "--json").json["pending"] == []
    good = run_command("enqueue", "fine", "7", "--store", url, "--json").json["id"]
    bad = run_command("enqueue", "refused", "--store", url, "--tag", "x", "--json").json["id"]
    later = run_command("enqueue", "fine", "8", "--delay", "3600", "--store", url, "--json").json["id"]
    [queue] = run_command("status", "--store", url, "--json").json["queues"]
    assert (queue["region"], queue["ready"]) == ("default", 2)
    drain(url)
    assert run_command("show", good, "--store", url, "--json").json["status"] == "done"
    assert [job["id"] for job in run_command("jobs", "--status", "failed", "--store", url, "--json").json] == [bad]
    assert [job["id"] for job in run_command("jobs", "--tag", "x", "--store", url, "--json").json] == [bad]
    assert "no such invoice" in run_command("why", bad, "--store", url).out
    assert run_command("requeue", bad, "--store", url).code == 0
    assert run_command("requeue", bad, "--store", url).code == 1
    assert run_command("cancel", later, "--store", url).code == 0
    assert run_command("pause", "default", "--reason", "holiday", "--store", url).code == 0
    assert run_command("status", "--store", url, "--json").json["queues"][0]["paused"] is True
    assert run_command("resume", "default", "--store", url).code == 0
    kinds = [event["kind"] for event in run_command("events", "--store", url, "--json").lines]
    assert {"FAILED", "REQUEUED", "CANCELLED", "QUEUE_PAUSED", "QUEUE_RESUMED"} <= set(kinds)
    assert kinds.index("REQUEUED") < kinds.index("CANCELLED") < kinds.index("QUEUE_PAUSED") < kinds.index("QUEUE_RESUMED")


def test_a_fleet_is_steered_by_commands(url: str) -> None:
    """Settings of a queue and breakers are changed, shown, told and taken back, and workers obey them."""
    run_command("migrate", "--store", url)
    assert run_command("configure", "--store", url, "--json").json == {"queues": []}
    changed = run_command("configure", "default", "--claim", "separate(2)", "--rate", "100/m", "--store", url, "--json")
    assert (changed.code, changed.json["settings"]) == (0, {"claim": "separate(2)", "rate": "100/m"})
    assert run_command("configure", "default", "--rate", "100/m", "--store", url).code == 1
    run_command("configure", "default", "--budget", "20%+10/s", "--store", url)
    [queue] = run_command("configure", "--store", url, "--json").json["queues"]
    assert queue["settings"] == {"claim": "separate(2)", "rate": "100/m", "budget": "20%+10/s"}
    assert run_command("breakers", "open", "bank", "--reason", "closed today", "--store", url).code == 0
    [breaker] = run_command("breakers", "--store", url, "--json").json["breakers"]
    assert (breaker["name"], breaker["state"], breaker["reason"]) == ("bank", "open", "closed today")

    async def serve() -> list[str]:
        """What becomes of a job that depends on the bank while one that depends on nothing is run after it."""
        async with make_app(url) as app:
            task = app.task(name="charge", depends_on="bank")(asyncio.sleep)
            if not [job async for job in app.jobs(task="charge")]:
                await task.enqueue(0)
            async with app.worker(concurrency=1):
                await (await app.enqueue("fine")).result(timeout=20)
            return [job.status async for job in app.jobs(task="charge")]

    assert asyncio.run(serve()) == ["pending"]
    assert run_command("breakers", "close", "bank", "--store", url).code == 0
    assert asyncio.run(serve()) == ["done"]
    assert run_command("configure", "default", "--reset", "--store", url).code == 0
    assert run_command("configure", "--store", url, "--json").json == {"queues": []}
    kinds = [event["kind"] for event in run_command("events", "--store", url, "--json").lines if not event["kind"].startswith("WORKER")]
    assert kinds == ["QUEUE_CHANGED", "QUEUE_CHANGED", "BREAKER_OPENED", "BREAKER_CLOSED", "QUEUE_CHANGED"]


def test_what_operators_changed_is_copied(url: str, folder: Path) -> None:
    """Settings of queues and an open breaker arrive in the second store; what was changed there since stays."""
    (folder / "target").mkdir()
    target = f"sqlite:///{folder}/target/jobs.db"
    run_command("migrate", "--store", url)
    run_command("configure", "default", "--concurrency", "3", "--by", "anna", "--store", url)
    run_command("breakers", "open", "bank", "--store", url)
    assert run_command("copy", "--from", url, "--to", target, "--json").json["notes"] == 2
    [queue] = run_command("configure", "--store", target, "--json").json["queues"]
    assert (queue["settings"], queue["by"]) == ({"concurrency": 3}, "anna")
    assert [one["state"] for one in run_command("breakers", "--store", target, "--json").json["breakers"]] == ["open"]
    run_command("breakers", "close", "bank", "--store", target)
    assert run_command("copy", "--from", url, "--to", target, "--json").json["notes"] == 0
    assert [one["state"] for one in run_command("breakers", "--store", target, "--json").json["breakers"]] == ["closed"]


def test_the_doctor_states_the_promise(url: str) -> None:
    """What may be lost, what a fail-over does, whose clock it is: in words and in JSON, and no secret in either."""
    run_command("migrate", "--store", url)
    answer = run_command("doctor", "--store", url, "--json")
    assert answer.code == 0, answer.out
    promise = answer.json["promise"]
    assert promise["durable"] is True
    assert promise["weaknesses"] == []
    told = run_command("doctor", "--store", url).out
    for words in (promise["loss_window"], promise["fail_over"], promise["clock"]):
        assert words
        assert words in told


def test_a_look_creates_nothing(url: str) -> None:
    """A store that is not set up is not set up by looking at it; the answer says how to."""
    answer = run_command("status", "--store", _untouched(url))
    assert answer.code == 4
    assert "mulligan migrate" in answer.err
    assert run_command("migrate", "--plan", "--store", _untouched(url)).code == 1
    assert run_command("status", "--store", _untouched(url)).code == 4


def _untouched(url: str) -> str:
    """A place beside that of the test where nothing has ever been."""
    if url.startswith("sqlite"):
        return url.replace("jobs.db", "never.db")
    if url.startswith("mongodb"):
        return re.sub(r"/t_[^?]*", lambda match: match[0] + "_never", url)
    return re.sub(r"((?:schema|app)=[a-z0-9_-]+)", r"\1_never", url)


def test_a_worker_process_runs_and_stops(url: str, folder: Path) -> None:
    """`mulligan worker` claims from the store, is woken by an enqueue of another process, and leaves cleanly when told."""
    (folder / "shop.py").write_text(PROGRAM.format(url=url))
    with started("worker", "shop:app", "--concurrency", "2", folder=folder) as process:
        line_with(process, "worker")
        run_command("enqueue", "fine", "1", "--store", url)
        line_with(process, "ran 1")
        [worker] = run_command("status", "--store", url, "--json").json["workers"]
        assert worker["concurrency"] == 2
        process.send_signal(signal.SIGTERM)
        assert ended(process).code == 0
    assert run_command("jobs", "--status", "done", "--store", url, "--json").json != []


@pytest.mark.parametrize("source", [name for name in BACKENDS if name in DURABLE])
def test_everything_is_copied_from_store_to_store(url: str, source: str, folder: Path) -> None:
    """Jobs with histories and receipts, queues and schedules arrive whole; a repeat copies nothing; work goes on where it is now."""
    (folder / "source").mkdir()
    source_url = url_of(source, folder / "source")

    async def fill() -> dict[str, object]:
        async with make_app(source_url) as app:
            await app.enqueue("refused", tags=["t"])
            [lease] = await app.claim()
            await lease.once("charge", dict, amount=42)
            await lease.release()
            await app.enqueue("broken", unique_key="k")
            await app.enqueue("fine", args=[1])
            async with app.worker() as worker:
                await worker.drain()
            await app.enqueue_many([app.build(app.registry.need("fine"), [n], {}, Options()) for n in range(700)])
            await app.enqueue("fine", interval=3_600, name="hourly")
            await app.pause("default", reason="moving", by="ann")
            return {job.id: (await app.get(job.id)).history async for job in app.jobs(status="failed")}

    histories = asyncio.run(fill())
    answer = run_command("copy", "--from", source_url, "--to", url, "--json")
    assert answer.code == 0, answer
    assert (answer.json["copied"], answer.json["verified"], answer.json["schedules"], answer.json["queues"]) == (703, True, 1, 1)
    again = run_command("copy", "--from", source_url, "--to", url, "--json").json
    assert (again["copied"], again["already_there"], again["differing"], again["verified"]) == (0, 703, 0, True)

    async def look() -> None:
        async with make_app(url) as app:
            assert {job.id: (await app.get(job.id)).history async for job in app.jobs(status="failed")} == histories
            [charged] = [own for own in await app.store.receipts(list(histories)) if own]
            assert [(receipt.name, receipt.value, receipt.fence) for receipt in charged] == [("charge", {"amount": 42}, 1)]
            assert [schedule.name for schedule in await app.schedules()] == ["hourly"]
            assert (await app.status())["default"].paused
            await app.resume("default")
            async with app.worker() as worker:
                await worker.drain()
            assert (await app.status())["default"].done == 701

    asyncio.run(look())
    moved = run_command("copy", "--from", source_url, "--to", url, "--json", "--force").json
    assert (moved["copied"], moved["differing"], moved["verified"]) == (0, 700, True)


def test_a_repeated_copy_leaves_alone_what_was_changed_since(url: str, folder: Path) -> None:
    """A queue resumed and a schedule removed in the second store stay so; what it never had arrives."""
    source = f"sqlite:///{folder}/source.db"

    async def fill() -> None:
        async with make_app(source) as app:
            await app.enqueue("fine", interval=60, name="kept")
            await app.enqueue("fine")
            await app.pause("default", reason="moving")

    async def change() -> None:
        async with make_app(url) as app:
            await app.resume("default")

    async def states() -> tuple[list[bool], list[str]]:
        async with make_app(url) as app:
            return [queue.paused for queue in (await app.status()).queues], [schedule.name for schedule in await app.schedules()]

    asyncio.run(fill())
    run_command("copy", "--from", source, "--to", url)
    assert asyncio.run(states()) == ([True], ["kept"])
    asyncio.run(change())
    again = run_command("copy", "--from", source, "--to", url, "--json")
    assert (again.code, again.json["queues"], again.json["schedules"]) == (0, 0, 0)
    assert asyncio.run(states()) == ([False], ["kept"])


def test_large_jobs_are_copied_in_small_portions(url: str, folder: Path) -> None:
    """A hundred payloads of almost a megabyte pass a store that must answer within two seconds."""
    source = f"sqlite:///{folder}/source.db"

    async def fill() -> None:
        async with make_app(source) as app:
            for _ in range(10):
                await app.enqueue_many([app.build(app.registry.need("fine"), ["x" * 1_000_000], {}, Options()) for _ in range(10)])

    asyncio.run(fill())
    target = url if url.startswith("sqlite") else f"{url}&timeout=2"
    answer = run_command("copy", "--from", source, "--to", target, "--json")
    assert (answer.code, answer.json["copied"], answer.json["verified"]) == (0, 100, True), answer


def test_a_store_somebody_works_on_is_not_copied(url: str, folder: Path) -> None:
    """While a worker lives, or a job is held, the copy is refused with what to do; --force copies all the same."""

    async def hold() -> None:
        async with make_app(url) as app:
            await app.enqueue("fine")
            await app.claim()

    asyncio.run(hold())
    target = f"sqlite:///{folder}/target.db"
    refused = run_command("copy", "--from", url, "--to", target)
    assert refused.code == 2
    assert "being processed" in refused.err
    assert "--force" in refused.err
    assert run_command("copy", "--from", url, "--to", target, "--force").code == 0
    same = run_command("copy", "--from", url, "--to", url, "--force")
    assert same.code == 2
    assert "same store" in same.err


async def test_an_interrupted_copy_is_resumed(url: str, folder: Path) -> None:
    """What one run has carried over, the next leaves alone and goes on behind it."""
    from mulligan.cli.copying import FIRST_PAGE, copy_store

    async with make_app(url) as source, Mulligan(f"sqlite:///{folder}/target.db") as target:
        await source.enqueue_many([source.build(source.registry.need("fine"), [n], {}, Options()) for n in range(1_200)])

        class Interrupted(Exception):
            pass

        def told(_jobs: int) -> None:
            raise Interrupted

        with pytest.raises(Interrupted):
            await copy_store(source.store, target.store, told)
        assert len([job async for job in target.jobs()]) == FIRST_PAGE
        steps: list[int] = []
        copied = await copy_store(source.store, target.store, steps.append)
        assert (copied.copied, copied.already_there, copied.verified) == (1_200 - FIRST_PAGE, FIRST_PAGE, True)
        assert sum(steps) == 1_200 and max(steps) == 500
        assert {job.id async for job in source.jobs()} == {job.id async for job in target.jobs()}


SCRIPTED = [name for name in ("sqlite", "postgres") if name in BACKENDS]


@pytest.mark.parametrize("backend", SCRIPTED)
def test_a_store_made_by_the_printed_script_is_ready(backend: str, folder: Path) -> None:
    """`migrate --sql`, run by somebody with the right to, leaves a store that needs no further step and works."""
    url = _untouched(url_of(backend, folder))
    script = run_command("migrate", "--sql", "--store", url).out
    if backend == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(script)
        connection.close()
    else:
        with psycopg.connect(url.partition("?")[0], autocommit=True) as own:
            own.execute(script)  # type: ignore[call-overload]
    try:
        assert run_command("migrate", "--plan", "--store", url, "--json").json["pending"] == []
        assert run_command("enqueue", "fine", "--store", url).code == 0
        assert run_command("status", "--store", url).code == 0
    finally:
        if backend == "postgres":
            with psycopg.connect(url.partition("?")[0], autocommit=True) as own:
                own.execute(f"DROP SCHEMA {url.partition('schema=')[2]} CASCADE")  # type: ignore[call-overload]


def test_the_doctor_fails_where_the_server_keeps_less_than_asked() -> None:
    """A Redis that never syncs its file, and a PostgreSQL that acknowledges before it writes: exit code 1, and what to set."""
    weak = [(Redis(options={"appendfsync": "no"}), "appendfsync"), (Postgres(options={"synchronous_commit": "off"}), "synchronous_commit")]
    for server, setting in weak:
        with server:
            run_command("migrate", "--store", server.url)
            answer = run_command("doctor", "--store", server.url, "--json")
            assert answer.code == 1
            assert any(setting in weakness["what"] for weakness in answer.json["promise"]["weaknesses"])
            assert any(finding["level"] == "fail" and finding["advice"] for finding in answer.json["findings"])


@pytest.mark.parametrize(
    "kind, login", [("postgres", "nobody-here:s3cret@"), ("mongo", "nobody-here:s3cret@"), ("redis", "nobody-here:s3cret@")]
)
def test_a_refused_login_is_a_matter_of_settings(kind: str, login: str) -> None:
    """A wrong user or password ends every command with exit code 2 and words about it, and is not shown."""
    scheme, _, rest = server_url(kind).partition("://")
    answer = run_command("status", "--store", f"{scheme}://{login}{rest.rpartition('@')[2]}")
    assert answer.code == 2, answer
    assert "s3cret" not in answer.err
    assert any(word in answer.err for word in ("user", "password", "role"))
