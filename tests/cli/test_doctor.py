"""Every kind of trouble is found, told with its remedy, and decides the exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan import Constant, Mulligan, RetryPolicy
from mulligan.cli.doctor_store import WAL_BYTES_WARN, file_findings, store_findings
from mulligan.cli.doctor_work import Evidence, work_findings
from mulligan.cli.finding import Finding
from mulligan.core.events import Event
from mulligan.core.job import Job
from tests.builders import schedule, us, worker_info
from tests.cli.conftest import Run, Shop
from tests.cli.test_explain import ERROR, MINE, NOW_US, at_rest, job, status

HEALTHY: dict[str, object] = {
    "sqlite_version": "3.52.0",
    "wal_reset_bug": False,
    "journal_mode": "wal",
    "synchronous": "full",
    "durability": "full",
    "schema_version": 1,
    "file_bytes": 4096,
    "wal_bytes": 0,
    "hints": "on",
}


def of(findings: list[Finding], check: str) -> Finding:
    """The one finding of a check."""
    [found] = [one for one in findings if one.check == check]
    return found


def test_a_healthy_store_has_nothing_to_do() -> None:
    """Every check of the store is ok."""
    assert {one.level for one in store_findings(HEALTHY)} == {"ok"}


@pytest.mark.parametrize(
    "facts, check, level, words",
    [
        ({"wal_reset_bug": True, "sqlite_version": "3.40.1"}, "library", "warn", "3.40.1 has the WAL-reset bug"),
        ({"wal_reset_bug": True}, "library", "warn", "lock file"),
        ({"durability": "normal", "synchronous": "normal"}, "durability", "warn", "power loss may take"),
        ({"synchronous": "off"}, "durability", "fail", "synchronous=off"),
        ({"journal_mode": "delete"}, "journal", "fail", "delete"),
        ({"wal_bytes": WAL_BYTES_WARN + 1}, "write-ahead log", "warn", "read transaction"),
        ({"hints": "off: the path is too long"}, "wake-ups", "warn", "the path is too long"),
    ],
)
def test_trouble_of_the_store_is_found(facts: dict[str, object], check: str, level: str, words: str) -> None:
    """Each unhealthy fact is one finding with advice; all others stay ok."""
    findings = store_findings(HEALTHY | facts)
    found = of(findings, check)
    assert found.level == level
    assert words in found.message
    assert found.advice
    assert [one.check for one in findings if one.level != "ok"] == [check]


def test_a_store_that_tells_nothing_has_no_findings() -> None:
    """Not every store describes itself."""
    assert store_findings({}) == []


def test_the_rights_of_the_file_are_looked_at(tmp_path: Path) -> None:
    """A file others may read is worth a warning; one for its owner alone is fine."""
    file = tmp_path / "jobs.db"
    file.touch(mode=0o600)
    assert [one.level for one in file_findings(file)] == ["ok"]
    file.chmod(0o644)
    [found] = file_findings(file)
    assert (found.level, f"chmod 600 {file}" in found.advice) == ("warn", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everything")
def test_a_file_one_may_not_write_is_a_failure(tmp_path: Path) -> None:
    """Without the right to write nothing can run."""
    file = tmp_path / "jobs.db"
    file.touch(mode=0o400)
    assert [one.level for one in file_findings(file)] == ["fail"]


def evidence(**fields: Any) -> Evidence:
    """A quiet store with one worker, with some of it changed."""
    given: dict[str, Any] = {"now_us": NOW_US, "status": status(MINE, queue_size=0, ready=0), "hint": " --store x"}
    return Evidence(**(given | fields))


def test_a_quiet_store_is_well() -> None:
    """Every check of the work is ok."""
    assert {one.level for one in work_findings(evidence())} == {"ok"}


def retries(number: int, age_s: float = 5) -> list[Event]:
    return [Event(kind="RETRY_SCHEDULED", at_us=NOW_US - us(age_s), task="charge") for _ in range(number)]


def waiting(seconds: float, **fields: Any) -> Job:
    return job(
        RetryPolicy(max_retries=5, backoff=Constant(delay=7200), jitter="none"), lane="retry", run_at_us=NOW_US + us(seconds), **fields
    )


@pytest.mark.parametrize(
    "fields, check, level, words",
    [
        ({"status": status()}, "workers", "warn", "no worker is alive"),
        ({"status": status()}, "unserved queues", "fail", "queue q: 1 job waiting (1 due)"),
        ({"status": status(ready=0)}, "unserved queues", "warn", "(0 due)"),
        ({"status": status(worker_info(queues=("r",)))}, "unserved queues", "fail", "no worker serves it"),
        ({"status": status(MINE, paused=True, pause_reason="lunch")}, "paused queues", "warn", "q is paused (lunch) while 1 job wait"),
        (
            {"status": status(worker_info("old", queues=("q",), unknown_tasks=("gone",)))},
            "unknown tasks",
            "warn",
            "task gone is not known to old",
        ),
        ({"status": status(MINE, stuck=2)}, "stuck jobs", "warn", "2 jobs"),
        ({"status": status(stuck=1, queue_size=0)}, "stuck jobs", "fail", "1 job"),
        (
            {"schedules": [schedule("nightly", next_tick_us=NOW_US - us(600))]},
            "schedules",
            "warn",
            "nightly should have made a job 600 s ago",
        ),
        (
            {"status": status(MINE, failed=1), "failed": [at_rest("failed", attempts=4, last_error=ERROR)]},
            "failed jobs",
            "warn",
            "1 failed job of work with builtins.ConnectionError, the newest 5 s ago: ConnectionError: refused",
        ),
        ({"failed": [at_rest("failed", attempts=1)]}, "not retried", "warn", "1 job of work failed with retries left"),
        ({"failed": [at_rest("failed", attempts=1, max_retries=0)]}, "not retried", "warn", "max_retries is 0"),
        ({"events": retries(11)}, "many retries", "warn", "11 retries of charge within the last minute"),
        ({"waiting_retries": [waiting(7000), waiting(5)]}, "long delays", "warn", "1 retry of work wait for up to 7000 s more"),
    ],
)
def test_trouble_of_the_work_is_found(fields: dict[str, Any], check: str, level: str, words: str) -> None:
    """Each kind of trouble is one finding with advice: what waits for nobody, is not retried, too often retried, or waits too long."""
    found = of(work_findings(evidence(**fields)), check)
    assert found.level == level
    assert words in found.message
    assert found.advice


@pytest.mark.parametrize(
    "fields",
    [
        {"events": retries(10)},
        {"events": retries(50, age_s=61)},
        {"waiting_retries": [waiting(899)]},
        {"failed": [at_rest("failed", attempts=4)]},
        {"schedules": [schedule(next_tick_us=NOW_US - us(30)), schedule("p", next_tick_us=0, paused=True)]},
        {"status": status(MINE, paused=True, queue_size=0, ready=0)},
    ],
)
def test_what_is_normal_is_not_reported(fields: dict[str, Any]) -> None:
    """A few retries, a short wait, a job that used its retries, a paused queue without jobs: nothing to do."""
    assert {one.level for one in work_findings(evidence(**fields))} == {"ok"}


def test_failures_are_grouped_and_bounded() -> None:
    """A thousand failed jobs are a handful of lines, the commonest first."""
    errors = [msgspec.structs.replace(ERROR, type=f"E{number % 9}") for number in range(100)]
    failed = [at_rest("failed", attempts=4, last_error=error) for error in [*errors, errors[3]]]
    found = [one for one in work_findings(evidence(status=status(MINE, failed=101), failed=failed)) if one.check == "failed jobs"]
    assert len(found) == 6
    assert "12 failed jobs of work with E" in found[0].message
    assert "4 more kinds" in found[-1].message


def test_long_delays_name_the_policy() -> None:
    """The reason of a long wait is in its policy, which is told in a sentence."""
    found = of(work_findings(evidence(waiting_retries=[waiting(7000)])), "long delays")
    assert RetryPolicy(max_retries=5, backoff=Constant(delay=7200), jitter="none").explain() in found.message


def test_doctor_on_a_store_that_is_well(run: Run, shop: Shop) -> None:
    """Nothing must be done: exit code 0, in text and in JSON."""
    answer = run("doctor", "--json")
    assert answer.code == 0
    document = answer.json
    assert document["ok"] is True
    assert document["counts"]["fail"] == 0
    assert {"store", "rights", "schema", "library", "durability", "journal", "failed jobs"} <= {
        one["check"] for one in document["findings"]
    }
    text = run("doctor")
    assert text.code == 0
    assert "ok    store: " in text.out


def test_doctor_finds_jobs_nobody_runs(run: Run, shop: Shop) -> None:
    """Due jobs without a worker must be acted on: exit code 1, with the command to start one."""
    shop.enqueue("fine", queue="billing")
    answer = run("doctor")
    assert answer.code == 1
    assert "fail  unserved queues: queue billing" in answer.out
    assert "mulligan worker MODULE:APP --queues billing" in answer.out


def test_doctor_answers_the_three_questions(run: Run, shop: Shop) -> None:
    """O18: not retrying, too many retries, delays too long: each is answered from a store that has that trouble."""
    shop.enqueue("refused")
    for _ in range(11):
        shop.enqueue("broken")
    shop.work()
    shop.enqueue("fine")

    async def put_off(app: Mulligan) -> None:
        [lease] = await app.claim()
        await lease.fail("come back much later", after=3000)

    shop.do(put_off)
    findings = {(one["level"], one["check"]) for one in run("doctor", "--json").json["findings"]}
    assert {("warn", "not retried"), ("warn", "many retries"), ("warn", "long delays")} <= findings


def test_doctor_on_a_missing_store_creates_nothing(run: Run, folder: Path) -> None:
    """It is a failure, told like the others, and the folder stays empty."""
    answer = run("doctor", "--json")
    assert answer.code == 1
    [found] = answer.json["findings"]
    assert (found["level"], found["check"]) == ("fail", "store")
    assert list(folder.iterdir()) == []


def test_doctor_on_a_file_of_another_schema(run: Run, folder: Path) -> None:
    """A file without our tables is a failure of the schema, with the command that mends it."""
    (folder / "mulligan.db").touch()
    answer = run("doctor")
    assert answer.code == 1
    assert "fail  schema: " in answer.out
    assert "mulligan migrate" in answer.out
