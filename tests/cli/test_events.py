from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import ended, line_with, started
from tests.cli.conftest import Run, Shop


def test_events_are_lines_of_json(run: Run, shop: Shop) -> None:
    """Failures, retries and the end of a job stand in the log, oldest first, each as one line."""
    job_id = shop.enqueue("broken")
    shop.work()
    events = run("events", "--json").lines
    assert [event["kind"] for event in events if event["job_id"] == job_id] == ["FAILED", "RETRY_SCHEDULED", "FAILED"]
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    first = next(event for event in events if event["kind"] == "FAILED")
    assert (first["task"], first["queue"], first["attempt"], first["detail"]["final"]) == ("broken", "default", 1, False)
    assert first["at"].endswith("Z")


def test_events_are_filtered(run: Run, shop: Shop) -> None:
    """By kind, by job, and to the newest so many; a kind that is not kept is refused with those that are."""
    one, other = shop.enqueue("broken"), shop.enqueue("refused")
    shop.work()
    assert {event["kind"] for event in run("events", "--kind", "failed", "--json").lines} == {"FAILED"}
    assert {event["job_id"] for event in run("events", "--job", other, "--json").lines} == {other}
    newest = run("events", "--job", one, "--limit", "1", "--json").lines
    assert [event["kind"] for event in newest] == ["FAILED"]
    assert newest[0]["detail"]["final"] is True
    wrong = run("events", "--kind", "COMPLETED")
    assert wrong.code == 2
    assert "RETRY_SCHEDULED" in wrong.err


def test_events_as_text_tell_the_reason(run: Run, shop: Shop) -> None:
    """Each line has kind, task, job and what a person wants to know."""
    job_id = shop.enqueue("broken", "no luck")
    shop.work()
    [line] = [line for line in run("events").out.splitlines() if "RETRY_SCHEDULED" in line]
    assert f"broken {job_id} attempt 1: again in 0.001 s" in line
    assert "no luck" in run("events", "--kind", "FAILED").out


def test_follow_shows_what_other_processes_do(run: Run, shop: Shop, folder: Path) -> None:
    """What is already there is shown first, then what comes; Ctrl-C is the normal end."""
    shop.enqueue("refused")
    shop.work()
    with started("events", "--follow", "--every", "0.05", "--json", folder=folder) as process:
        line_with(process, "FAILED")
        run("pause", "default", "--reason", "seen by the follower")
        event = json.loads(line_with(process, "QUEUE_PAUSED"))
        assert event["detail"]["reason"] == "seen by the follower"
        process.send_signal(2)
        answer = ended(process)
    assert answer.code == 0
    assert answer.err == ""
