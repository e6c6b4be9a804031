"""configure and breakers: what an operator types reaches the fleet, and what is changed can be read again."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan import Job, Mulligan
from tests.cli.conftest import Run, Shop

EVERYTHING = (
    *("--claim", "separate(5)", "--concurrency", "20", "--max-inflight-retries", "3", "--key-concurrency", "2"),
    *("--rate", "100/m", "--rate-burst", "7", "--budget", "20%+10/s", "--budget-burst", "50"),
    *("--budget-over", "backoff", "--budget-stretch", "3", "--budget-each-tenant"),
)
CHANGED = {
    "claim": "separate(5)",
    "concurrency": 20,
    "max_inflight_retries": 3,
    "key_concurrency": 2,
    "rate": "100/m burst 7",
    "budget": "20%+10/s burst 50 over backoff stretch 3 each-tenant",
}


def settings_of(run: Run, *queue: str) -> dict[str, Any]:
    """What the command shows as changed, by queue."""
    answer = run("configure", *queue, "--json")
    assert answer.code == 0
    return {one["queue"]: one["settings"] for one in answer.json["queues"]}


def test_every_option_of_configure_reaches_the_queue(run: Run, shop: Shop) -> None:
    """All of them at once; the answer says what is changed now, in JSON as it is typed."""
    answer = run("configure", "default", *EVERYTHING, "--by", "anna", "--json")
    assert (answer.code, answer.json) == (0, {"queue": "default", "changed": True, "settings": CHANGED})
    shown = run("configure", "default", "--json").json["queues"]
    assert [(one["queue"], one["settings"], one["by"]) for one in shown] == [("default", CHANGED, "anna")]
    assert shown[0]["at"].endswith("Z")


def test_configure_changes_what_is_given_and_leaves_the_rest(run: Run, shop: Shop) -> None:
    """The second command adds to the first; none lifts a limit; --reset takes everything back."""
    first = run("configure", "default", "--claim", "weighted(0.3)", "--rate", "5/h")
    assert first.code == 0
    assert first.out.startswith("Queue default is served with claim weighted(0.3), rate 5/h; workers follow")
    assert "mulligan configure default --reset" in first.out
    assert run("configure", "default", "--rate", "none", "--concurrency", "none", "--budget", "None").code == 0
    assert settings_of(run) == {"default": {"claim": "weighted(0.3)", "concurrency": None, "rate": None, "budget": None}}
    reset = run("configure", "default", "--reset")
    assert (reset.code, "as the code of its workers says" in reset.out) == (0, True)
    assert settings_of(run) == {}


def test_configure_says_whether_it_changed_anything(run: Run, shop: Shop) -> None:
    """The second of the same is a no, with the settings that are in force; so is a reset of nothing."""
    assert run("configure", "default", "--claim", "fifo").code == 0
    again = run("configure", "default", "--claim", "fifo", "--json")
    assert (again.code, again.json) == (1, {"queue": "default", "changed": False, "settings": {"claim": "fifo"}})
    assert "was served so already" in run("configure", "default", "--claim", "fifo").out
    assert run("configure", "default", "--reset", "--json").json["changed"] is True
    nothing = run("configure", "default", "--reset")
    assert (nothing.code, "already" in nothing.out) == (1, True)


def test_configure_without_an_option_is_a_look(run: Run, shop: Shop) -> None:
    """A table of what is changed, of one queue or of all; where nothing is, a sentence that says so."""
    assert "No queue is changed" in run("configure").out
    assert "Queue default is not changed" in run("configure", "default").out
    shop.enqueue("fine", queue="billing")
    run("configure", "billing", "--concurrency", "3", "--rate", "none", "--by", "anna")
    run("configure", "default", "--claim", "fifo", "--by", "bob")
    rows = [line.split() for line in run("configure").out.splitlines()]
    assert rows[0] == ["queue", "setting", "value", "changed", "by"]
    assert [(row[0], row[1], row[2], row[-1]) for row in rows[1:]] == [
        ("billing", "concurrency", "3", "anna"),
        ("billing", "rate", "none", "anna"),
        ("default", "claim", "fifo", "bob"),
    ]
    assert list(settings_of(run, "billing")) == ["billing"]


@pytest.mark.parametrize(
    "typed, words",
    [
        (["--claim", "nope"], "claim must be one of weighted, retry_first"),
        (["--claim", "weighted(2)"], "retry_share must be a number above 0 and below 1"),
        (["--concurrency", "0"], "concurrency must be a whole number from 1"),
        (["--concurrency", "many"], "neither a number nor none"),
        (["--key-concurrency", "none"], "not a valid integer"),
        (["--rate", "fast"], "a rate is written as 100/m, 10/s or 5/h"),
        (["--rate", "0/s"], "per_s must be a number above 0"),
        (["--rate", "1/s", "--rate-burst", "0"], "burst must be a number from 1"),
        (["--budget", "20"], "a budget is written as 100/m, 10/s, 20% or 20%+10/s"),
        (["--budget", "5/h"], "not per hour"),
        (["--budget", "5/s", "--budget-over", "never"], "'never' is not one of"),
        (["--budget", "5/s", "--budget-stretch", "0"], "stretch must be"),
        (["--rate-burst", "5"], "give it together with --rate"),
        (["--rate", "none", "--rate-burst", "5"], "give it together with --rate"),
        (["--budget-over", "fail"], "--budget-over says more about a budget"),
        (["--budget-each-tenant"], "--budget-each-tenant says more"),
        (["--reset", "--claim", "fifo"], "--reset takes all changes back; give it alone"),
    ],
)
def test_what_configure_cannot_use_is_refused(run: Run, shop: Shop, typed: list[str], words: str) -> None:
    """The exit code is 2, the message says what would do, and nothing is changed."""
    answer = run("configure", "default", *typed)
    assert answer.code == 2
    assert words in answer.err
    assert answer.out == ""
    assert settings_of(run) == {}


def test_configure_needs_a_queue_to_change(run: Run, shop: Shop) -> None:
    """Without one there is only a look; the error says how it goes, also in JSON."""
    for typed in (["--claim", "fifo"], ["--reset"]):
        answer = run("configure", *typed, "--json")
        assert (answer.code, answer.json["error"]["type"]) == (2, "BadSetting")
        assert "mulligan configure QUEUE" in answer.json["error"]["message"]


@pytest.mark.parametrize("typed", [[], ["--claim", "fifo"], ["--reset"]], ids=["look", "change", "reset"])
def test_configure_of_an_unknown_queue_is_not_found(run: Run, shop: Shop, typed: list[str]) -> None:
    """The exit code is 3, the known ones are named, and nothing is written."""
    shop.enqueue("fine", queue="billing")
    answer = run("configure", "biling", *typed)
    assert answer.code == 3
    assert "billing" in answer.err
    assert settings_of(run) == {}


def test_what_configure_says_holds_for_workers(run: Run, shop: Shop) -> None:
    """A cap of one: of five jobs that take a while, never two run at once; without it, they do."""

    def most_at_once() -> int:
        async def work(app: Mulligan) -> int:
            import asyncio

            running = most = 0

            @app.task(name="slow")
            async def slow() -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.01)
                running -= 1

            await app.enqueue_many([slow.job() for _ in range(5)])
            async with app.worker() as worker:
                await worker.drain()
            return most

        return shop.do(work)

    assert most_at_once() > 1
    run("configure", "default", "--concurrency", "1")
    assert most_at_once() == 1


# --- breakers ----------------------------------------------------------------------------------------------------------


def test_no_breakers_is_a_sentence(run: Run, shop: Shop) -> None:
    """An empty list tells when there would be something in it."""
    answer = run("breakers")
    assert answer.code == 0
    assert "depends_on" in answer.out
    assert run("breakers", "--json").json == {"breakers": []}


def test_a_breaker_from_open_to_closed(run: Run, shop: Shop) -> None:
    """Opened, listed, explained and closed; each move says whether it changed anything."""
    opened = run("breakers", "open", "stripe", "--reason", "they asked", "--by", "anna")
    assert opened.code == 0
    assert "mulligan breakers close stripe" in opened.out
    assert 'depends_on="stripe"' in opened.err
    titles, row = run("breakers").out.splitlines()
    assert titles.split() == ["breaker", "state", "since", "until", "held", "until", "by", "reason"]
    assert row.split()[:2] == ["stripe", "open"]
    assert "closed by hand" in row
    assert row.endswith("anna  they asked")
    again = run("breakers", "open", "stripe", "--json")
    assert (again.code, again.json["changed"], again.json["breaker"]["reason"]) == (1, False, "they asked")
    better = run("breakers", "open", "stripe", "--reason", "until noon", "--json")
    assert (better.code, better.json["breaker"]["reason"]) == (1, "until noon")
    assert "depends_on" not in better.err
    closed = run("breakers", "close", "stripe", "--by", "bob", "--json")
    assert closed.code == 0
    assert {"name": "stripe", "changed": True}.items() <= closed.json.items()
    assert {"state": "closed", "manual": False, "by": "bob", "until": None}.items() <= closed.json["breaker"].items()
    late = run("breakers", "close", "stripe")
    assert (late.code, late.out) == (1, "Breaker stripe was not open.\n")


def test_closing_a_breaker_nobody_knows_is_not_found(run: Run, shop: Shop) -> None:
    """The exit code is 3, the known ones are named, and none is made."""
    run("breakers", "open", "stripe")
    answer = run("breakers", "close", "strip")
    assert answer.code == 3
    assert "known: stripe" in answer.err
    document = run("breakers", "close", "strip", "--json")
    assert (document.code, document.json) == (3, {"name": "strip", "changed": False, "breaker": None})
    assert [one["name"] for one in run("breakers", "--json").json["breakers"]] == ["stripe"]


@pytest.mark.parametrize("typed", [["open"], ["close"], ["opne", "stripe"], ["open", "no name!"], ["open", "a", "b"]])
def test_what_breakers_cannot_use_is_refused(run: Run, shop: Shop, typed: list[str]) -> None:
    """A missing or impossible name, and a move that is none: exit code 2, and nothing is opened."""
    answer = run("breakers", *typed)
    assert answer.code == 2
    assert "Error: " in answer.err
    assert run("breakers", "--json").json == {"breakers": []}


def test_what_depends_on_an_open_breaker_waits(run: Run, shop: Shop) -> None:
    """A worker leaves the job alone, without an attempt, until the command closes the breaker."""

    async def work(app: Mulligan) -> Job:
        """One more job that depends on nothing is run; what has become of the one that does?"""
        task = app.task(name="charge", depends_on="stripe")(_nothing)
        known = [job async for job in app.jobs(task="charge")]
        job_id = known[0].id if known else (await task.enqueue()).id
        async with app.worker(concurrency=1):
            await (await app.enqueue("fine")).result(timeout=20)
        return await app.get(job_id)

    run("breakers", "open", "stripe")
    held = shop.do(work)
    assert (held.status, held.attempts) == ("pending", 0)
    run("breakers", "close", "stripe")
    assert shop.do(work).status == "done"


async def _nothing() -> None: ...


def test_events_tell_what_operators_did(run: Run, shop: Shop) -> None:
    """Each line names what was changed, how, and by whom."""
    run("configure", "default", "--claim", "fifo", "--concurrency", "none", "--by", "anna")
    run("configure", "default", "--reset", "--by", "bob")
    run("breakers", "open", "stripe", "--reason", "they asked", "--by", "anna")
    lines = [line.split(" ", 2)[2] for line in run("events").out.splitlines()]
    assert lines == [
        "QUEUE_CHANGED   default: claim fifo, concurrency none; anna",
        "QUEUE_CHANGED   default: as the code says; bob",
        "BREAKER_OPENED  stripe: anna; they asked",
    ]
    documents = run("events", "--json", "--kind", "queue_changed").lines
    assert [one["detail"] for one in documents] == [
        {"settings": {"claim": "fifo", "concurrency": None}, "by": "anna"},
        {"settings": {}, "by": "bob"},
    ]
