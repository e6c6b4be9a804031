"""status, jobs, show and why on a store that has lived."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mulligan import Mulligan
from mulligan.cli.job_view import job_view
from mulligan.core.change import Grip
from mulligan.core.contract import WorkerInfo
from mulligan.core.job import Job
from tests.cli.commands import ended, line_with, started
from tests.cli.conftest import Run, Shop

EVIL = "evil\x1b[31m\nsecond line\ttab [bold]x[/]"


def spanless(text: str) -> str:
    """A sentence without how long ago something was, which changes from look to look."""
    return re.sub(r"\([^()]* ago\)", "", text)


def test_status_shows_an_empty_store(run: Run, shop: Shop) -> None:
    """Without jobs and workers it says so, and is no error."""
    answer = run("status")
    assert answer.code == 0
    assert "No queue" in answer.out
    assert "No worker is alive" in answer.out
    assert run("status", "--json").json["queues"] == []


def test_status_in_json_has_the_fields_programs_need(run: Run, shop: Shop) -> None:
    """R08's fields and more, per queue; the running job is told."""
    shop.enqueue("fine", queue="billing")
    shop.enqueue("fine", queue="billing", delay=3600)

    async def claim(app: Mulligan) -> str:
        [lease] = await app.claim(queue="billing")
        return lease.id

    held = shop.do(claim)
    document = run("status", "--json").json
    assert datetime.fromisoformat(document["at"]).tzinfo is not None
    [queue] = document["queues"]
    assert queue["region"] == "billing"
    assert (queue["queue_size"], queue["retry_queue_size"], queue["processing"], queue["running"]) == (1, 0, True, 1)
    assert {"job_id": held, "retry_count": 0, "is_retry": False}.items() <= queue["current_job"].items()
    assert queue["next_due_in_s"] == pytest.approx(3600, abs=60)
    assert document["workers"] == []
    assert document["unknown_tasks"] == []


def test_status_shows_workers_pauses_and_unknown_tasks(run: Run, shop: Shop) -> None:
    """What a person must know stands below the tables."""
    shop.enqueue()
    info = WorkerInfo(id="w1", host="h", pid=7, queues=("default",), concurrency=5, running=2, started_at_us=0, unknown_tasks=("gone",))

    async def report(app: Mulligan) -> None:
        await app.store.renew([], 1_000_000, info)
        await app.pause("default", reason=EVIL)

    shop.do(report)
    answer = run("status")
    assert "w1" in answer.out
    assert "default (paused)" in answer.out
    assert "Queue default is paused: evil\\x1b[31m\\nsecond line" in answer.out
    assert "Task gone is not known" in answer.out
    document = run("status", "--json").json
    assert document["unknown_tasks"] == ["gone"]
    [worker] = document["workers"]
    assert {"id": "w1", "pid": 7, "concurrency": 5, "running": 2, "queues": ["default"]}.items() <= worker.items()
    assert worker["seen_at"].endswith("Z")


def test_status_watch_repeats_until_interrupted(shop: Shop, folder: Path) -> None:
    """With --json each look is one line, and Ctrl-C is the normal end."""
    with started("status", "--watch", "--every", "0.05", "--json", folder=folder) as process:
        seen = [json.loads(line_with(process, "queues")) for _ in range(3)]
        process.send_signal(2)
        assert ended(process).code == 0
    assert [document["queues"] for document in seen] == [[], [], []]


def test_jobs_are_listed_newest_first_and_paged(run: Run, shop: Shop) -> None:
    """A page is an array; --after with its last id gives the next."""
    ids = [shop.enqueue("fine", number) for number in range(5)]
    first = run("jobs", "--limit", "2", "--json").json
    assert [job["id"] for job in first] == [ids[4], ids[3]]
    rest = run("jobs", "--after", first[-1]["id"], "--json").json
    assert [job["id"] for job in rest] == [ids[2], ids[1], ids[0]]
    answer = run("jobs", "--limit", "2")
    assert f"--after {ids[3]}" in answer.out
    assert run("jobs", "--after", "nonsense").code == 2


def test_jobs_are_filtered(run: Run, shop: Shop) -> None:
    """Each filter keeps what matches and nothing else."""
    fine = shop.enqueue("fine", queue="a", tags=["red"])
    broken = shop.enqueue("broken", queue="b")

    def found(*options: str) -> list[str]:
        return [job["id"] for job in run("jobs", "--json", *options).json]

    assert found("--queue", "a") == [fine]
    assert found("--task", "broken") == [broken]
    assert found("--tag", "red") == [fine]
    assert found("--status", "pending") == [broken, fine]
    assert found("--status", "done") == []
    assert run("jobs", "--status", "done").out == "No job matches.\n"


def test_show_tells_every_field(run: Run, shop: Shop) -> None:
    """As JSON all of the job, decoded; as text the same for people, with history and traceback."""
    job_id = shop.enqueue("broken", "no luck", tags=["t"])
    shop.work()
    job = run("show", job_id, "--json").json
    assert (job["id"], job["status"], job["view"], job["attempts"], job["failures"], job["remaining_retries"]) == (
        job_id,
        "failed",
        "failed",
        2,
        2,
        0,
    )
    assert (job["args"], job["kwargs"], job["tags"], job["result"]) == (["no luck"], {}, ["t"], None)
    assert job["last_error"]["type"].endswith("ValueError")
    assert "raise ValueError" in job["last_error"]["traceback"]
    assert [record["outcome"] for record in job["history"]] == ["failure", "failure"]
    assert job["history"][0]["delay"] == pytest.approx(0.001)
    assert job["history"][1]["delay"] is None
    assert all(record["why"] for record in job["history"])
    assert job["created_at"].endswith("Z")
    assert job["policy"]["explained"].startswith("2 executions")
    text = run("show", job_id).out
    for piece in (job_id, 'broken("no luck")', "raise ValueError", "no retry is left", "attempt 2, generation 1"):
        assert piece in text


def test_the_view_has_every_field_of_a_job(shop: Shop) -> None:
    """A field added to Job must be shown, or be left out on purpose."""
    job_id = shop.enqueue("fine", 1)

    async def read(app: Mulligan) -> Job:
        return await app.get(job_id)

    seen = set(job_view(shop.do(read)))
    wanted = {name.removesuffix("_us").removesuffix("_json") for name in Job.__struct_fields__}
    renamed = {"payload": "args", "due_first": "due_first_at", "due": "due_at", "group": "depends_on"}
    assert {renamed.get(name, name) for name in wanted} <= seen
    assert {"view", "remaining_retries", "next_retry_at"} <= seen


def test_a_waiting_retry_tells_when_it_falls_due(run: Run, shop: Shop) -> None:
    """next_retry_at is set exactly while a retry waits for its time."""
    job_id = shop.enqueue("fine")

    async def fail(app: Mulligan) -> None:
        [lease] = await app.claim()
        await lease.fail("later", after=600)

    shop.do(fail)
    job = run("show", job_id, "--json").json
    assert job["view"] == "backing off"
    assert job["next_retry_at"] == job["run_at"] is not None
    assert run("why", job_id, "--json").json["situation"] == "backing off"


def test_what_cannot_be_decoded_is_shown_raw(run: Run, shop: Shop) -> None:
    """A payload that somebody has spoilt is shown with the reason, by every command that shows jobs."""
    job_id = shop.enqueue("fine")
    with sqlite3.connect(shop.file) as connection:
        connection.execute("UPDATE mulligan_jobs SET payload = '{spoilt' WHERE id = ?", [job_id])
    connection.close()
    job = run("show", job_id, "--json").json
    assert (job["args"], job["payload"]) == (None, "{spoilt")
    assert job["payload_error"]
    for command in (["show", job_id], ["why", job_id], ["jobs"], ["jobs", "--json"]):
        assert run(*command).code == 0


def test_receipts_are_shown(run: Run, shop: Shop) -> None:
    """show lists the finished steps with their times and values; a value that somebody has spoilt is shown raw."""
    job_id = shop.enqueue("fine")
    assert run("show", job_id, "--json").json["receipts"] == []
    assert "step" not in run("show", job_id).out

    async def step(app: Mulligan) -> None:
        [lease] = await app.claim()
        await lease.once("charge", dict, amount=42)
        await lease.once("mail", str, EVIL)
        await app.store.put_receipt(Grip(lease.id, 1), "spoilt", "{")

    shop.do(step)
    seen = {receipt["name"]: receipt for receipt in run("show", job_id, "--json").json["receipts"]}
    assert [seen[name]["value"] for name in ("charge", "mail", "spoilt")] == [{"amount": 42}, EVIL, "{"]
    assert seen["charge"]["fence"] == 1
    assert datetime.fromisoformat(seen["charge"]["at"]).tzinfo is not None
    answer = run("show", job_id)
    [line] = [line for line in answer.out.splitlines() if line.startswith("charge ")]
    assert '{"amount": 42}' in line
    assert "\x1b[31m" not in answer.out


def test_why_answers_with_sentences_and_facts(run: Run, shop: Shop) -> None:
    """The JSON holds the situation, the sentences of the text, the facts and the job."""
    job_id = shop.enqueue("refused")
    shop.work()
    document = run("why", job_id, "--json").json
    assert document["situation"] == "failed"
    text = run("why", job_id).out.splitlines()
    assert [spanless(sentence) for sentence in document["sentences"]] == [spanless(line) for line in text]
    assert document["job"]["id"] == job_id
    assert document["facts"]["queue_paused"] is False
    assert any(f"mulligan requeue {job_id}" in sentence and "--store" not in sentence for sentence in document["sentences"])


def test_why_recommends_commands_for_the_store_it_was_asked_about(run: Run, shop: Shop) -> None:
    """Where --store was needed to look, the recommended command has it too."""
    job_id = shop.enqueue("refused")
    shop.work()
    assert f"mulligan requeue {job_id} --store {shop.url}" in run("why", job_id, "--store", shop.url).out


@pytest.mark.parametrize(
    "command", [["status"], ["jobs"], ["show", "ID"], ["why", "ID"], ["events"], ["doctor"]], ids=lambda command: command[0]
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_text_from_outside_cannot_play_with_the_terminal(run: Run, shop: Shop, command: list[str], form: list[str]) -> None:
    """Whatever is in arguments, errors, tags and reasons, no control character comes out, and lines stay lines."""
    job_id = shop.enqueue("broken", EVIL, tags=[EVIL], unique_key=EVIL)
    shop.work()

    async def pause(app: Mulligan) -> None:
        await app.pause("default", reason=EVIL, by=EVIL)

    shop.do(pause)
    answer = run(*(job_id if word == "ID" else word for word in command), *form)
    assert answer.code == 0
    assert "\x1b" not in answer.out + answer.err
    assert "second line" not in [line.strip()[:11] for line in answer.out.splitlines()]


def test_a_look_leaves_the_jobs_as_they_are(run: Run, shop: Shop) -> None:
    """After every reading command each job is exactly what it was."""
    ids = [shop.enqueue("broken"), shop.enqueue("fine"), shop.enqueue("fine", delay=60)]
    shop.work()

    async def read(app: Mulligan) -> list[Any]:
        found = await app.store.get(ids)
        return [(job.status, job.fence, job.updated_at_us, job.history) for job in found if job is not None]

    before = shop.do(read)
    for command in (["status"], ["jobs"], ["show", ids[0]], ["why", ids[2]], ["events"], ["doctor"], ["migrate", "--plan"]):
        run(*command)
    assert shop.do(read) == before


def test_a_store_held_by_another_program_is_told(run: Run, shop: Shop) -> None:
    """A command that cannot get the write lock in time ends with 4 and one line, not with a traceback."""
    job_id = shop.enqueue("refused")
    shop.work()
    connection = sqlite3.connect(shop.file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        answer = run("requeue", job_id, "--store", f"{shop.url}?busy_timeout_s=0.1")
    finally:
        connection.execute("ROLLBACK")
        connection.close()
    assert answer.code == 4
    assert answer.err.startswith("Error: ")
    assert asyncio.run(_status_of(shop, job_id)) == "failed"


async def _status_of(shop: Shop, job_id: str) -> str:
    async with Mulligan(shop.url) as app:
        return (await app.get(job_id)).status
