"""Hand-made ledgers: each check complains about the one that breaks it, and about nothing else; none complains about honest histories."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mulligan.torture.findings import CHECKS
from mulligan.torture.ledger import Ledger, read_lines
from mulligan.torture.spans import Spans, covered
from tests.torture.late_stories import BAD_TIMES, GOOD_TIMES
from tests.torture.stories import CHILD, LEASE_US, MS, OTHER, OTHER_PARENT, PARENT, PRODUCER, S, Story, story


def takeover() -> Story:
    """A worker is killed with its job; when the lease is over another one takes it."""
    told = story().enqueue().claim().start().kill(PARENT, CHILD, how="kill worker").wait(LEASE_US)
    return told.crash(1, OTHER, guard="lapsed")


def third_crash(told: Story) -> Story:
    """The last of three deaths."""
    for fence in (1, 2):
        told.claim(fence).start(fence).kill(CHILD).crash(fence)
    return told.claim(3).start(3).kill(CHILD).crash(3, status="failed")


def failed_once() -> Story:
    """A job whose first execution has raised."""
    return story().enqueue().claim().start().end(how="error").settle(cause="failure", status="pending")


GOOD = {
    "one run": lambda: story().enqueue().run().row(),
    "nobody knows whether it was stored": lambda: story().enqueue(acknowledged=False),
    "unknown, and stored": lambda: story().enqueue(acknowledged=False).run().row(),
    "a failure, then success": lambda: (
        failed_once().run(2).row(attempts=2, failures=1, fence=2)
    ),
    "a snooze is free": lambda: (
        story().enqueue().claim().start().end(how="snooze").settle(cause="snooze", status="pending").run(2)
        .row(attempts=1, snoozes=1, fence=2)
    ),
    "a child died, its supervisor settled": lambda: (
        story().enqueue().claim().start().kill(CHILD).crash().run(2).row(attempts=2, crashes=1, fence=2)
    ),
    "a worker died, a sweeper came": lambda: takeover().run(2, OTHER).row(attempts=2, crashes=1, fence=2),
    "killed before it could note its claim": lambda: (
        story().enqueue().kill(CHILD).settle(1, PARENT, cause="release", status="pending").run(2).row(attempts=1, releases=1, fence=2)
    ),
    "a claim of the dead was found": lambda: (
        story().enqueue().kill(CHILD).note("FOUND", PARENT, job="a", fence=1, gen=1).settle(1, PARENT, cause="release", status="pending")
        .run(2).row(attempts=1, releases=1, fence=2)
    ),
    "killed after the settle was written": lambda: story().enqueue().claim().start().effect().end().settle(answer="").kill(CHILD).row(),
    "a stale holder is refused": lambda: (
        story().enqueue().claim().start().pause(PARENT, CHILD).wait(LEASE_US).crash(1, OTHER, guard="lapsed").claim(2, OTHER)
        .start(2, OTHER)
        .pause(PARENT, CHILD, step="stop").effect(1, fenced=True).end()
        .settle(answer="SETTLE_STALE").effect(2, OTHER, keyed=False).end(2, OTHER)
        .settle(2, OTHER).row(attempts=2, crashes=1, fence=2)
    ),
    "a stopped process starts what it had claimed long before": lambda: (
        story().enqueue().claim().pause(PARENT, CHILD).wait(LEASE_US).crash(1, OTHER, guard="lapsed").run(2, OTHER)
        .pause(PARENT, CHILD, step="stop").start().end(how="stopped").row(attempts=2, crashes=1, fence=2)
    ),
    "a repeated settle is answered twice": lambda: (
        story().enqueue().claim().start().end(how="error").settle(cause="failure", status="pending", answer="SETTLE_ERR")
        .settle(cause="failure", status="pending").claim(2).settle(cause="failure", status="pending").start(2).effect(2).end(2).settle(2)
        .row(attempts=2, failures=1, fence=2)
    ),
    "a settle that was repeated after the next claim": lambda: (
        story().enqueue().claim().start().end(how="error").settle(cause="failure", status="pending", answer="SETTLE_ERR").claim(2)
        .settle(cause="failure", status="pending", due_us=None).start(2).effect(2).end(2).settle(2).row(attempts=2, failures=1, fence=2)
    ),
    "three deaths of its own": lambda: third_crash(story().enqueue()).row("failed", attempts=3, crashes=3, fence=3),
    "requeued": lambda: (
        third_crash(story().enqueue()).note("REQUEUE", PRODUCER, job="a", gen=2, guard="dead").run(4, gen=2).row(generation=2, fence=4)
    ),
    "cancelled before it ran": lambda: (
        story().enqueue().note("CANCEL", PRODUCER, job="a", how="cancelled").row("cancelled", attempts=0, fence=0)
    ),
    "cancelled by one who died before it heard so": lambda: (
        story().enqueue().note("CANCEL_TRY", PRODUCER, job="a").kill(PRODUCER, how="kill producer").row("cancelled", attempts=0, fence=0)
    ),
    "cancelled while it ran": lambda: (
        story().enqueue().claim().start().note("CANCEL", PRODUCER, job="a", how="requested").end(how="stopped")
        .settle(cause="cancel", status="cancelled").row("cancelled")
    ),
    "the store was down while a child died": lambda: (
        story().enqueue().claim().start().kill(CHILD).note("NEMESIS", 1, step="start", how="restart").wait(20 * S)
        .note("NEMESIS", 1, step="stop", how="restart").wait(2 * S).crash().run(2).row(attempts=2, crashes=1, fence=2)
    ),
    "the supervisor was stopped while its child died": lambda: (
        story().enqueue().claim().start().kill(CHILD).pause(PARENT, how="pause parent").wait(20 * S)
        .pause(PARENT, how="pause parent", step="stop").crash().run(2).row(attempts=2, crashes=1, fence=2)
    ),
    **GOOD_TIMES,
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_honest_histories_pass(name: str) -> None:
    """What may happen is not complained about."""
    report = GOOD[name]().report()
    assert report["examples"] == []
    assert report["violations"] == 0


BAD = {
    "acknowledged, and gone": ({"LOST"}, lambda: story().enqueue()),
    "done, and gone": ({"LOST"}, lambda: story().enqueue().run()),
    "claimed, and gone before its producer heard that it was stored": ({"LOST"}, lambda: story().enqueue(acknowledged=False).claim()),
    "nobody asked for it": ({"PHANTOM"}, lambda: story().run().row()),
    "stored, and nobody asked for it": ({"PHANTOM"}, lambda: story().row("cancelled", attempts=0, fence=0)),
    "one key for two jobs": (
        {"PHANTOM"}, lambda: story().enqueue().enqueue("b").run().row().claim(job="b").start(job="b", key="a:1").effect(job="b")
        .end(job="b").settle(job="b").row(job="b"),
    ),
    "run again after success": ({"RERUN"}, lambda: story().enqueue().run().claim(2).start(2).row(attempts=2, fence=2)),
    "claimed in time, started after another's success, and nobody stopped it": (
        {"RERUN", "ATTEMPTS"}, lambda: story().enqueue().claim().wait(LEASE_US).crash(1, OTHER, guard="lapsed").run(2, OTHER).start()
        .row(attempts=2, crashes=1, fence=2),
    ),
    "taken over before the lease had ended": (
        {"OVERLAP"}, lambda: story().enqueue().claim().start().kill(PARENT, CHILD).crash(1, OTHER, guard="lapsed").run(2, OTHER)
        .row(attempts=2, crashes=1, fence=2),
    ),
    "taken over although it was renewed": (
        {"OVERLAP"}, lambda: story().enqueue().claim().start().wait(1_900 * MS)
        .renew().kill(PARENT, CHILD).wait(S).crash(1, OTHER, guard="lapsed").run(2, OTHER).row(attempts=2, crashes=1, fence=2),
    ),
    "given away while it ran": (
        {"OVERLAP", "ATTEMPTS"}, lambda: story().enqueue().claim().start().crash().claim(2, OTHER).start(2, OTHER).end()
        .effect(2, OTHER).end(2, OTHER).settle(2, OTHER).row(attempts=2, crashes=1, fence=2),
    ),
    "started twice under one claim": ({"OVERLAP"}, lambda: story().enqueue().claim().start().start().effect().end().settle().row()),
    "a claim in the time of another's lease": (
        {"OVERLAP"}, lambda: story().enqueue().claim().start().claim(2, OTHER).start(2, OTHER).end().effect(2, OTHER).end(2, OTHER)
        .settle(2, OTHER).row(attempts=2, fence=2),
    ),
    "fences that fall": (
        {"FENCE", "OVERLAP"}, lambda: story().enqueue().claim(2).start(2).end(2, how="error").settle(2, cause="failure", status="pending")
        .run(1).row(attempts=2, failures=1, fence=2),
    ),
    "one fence for two claims": (
        {"FENCE"}, lambda: story().enqueue().claim().claim(1, OTHER, claim_id="another").start().effect().end().settle().row(),
    ),
    "a stale success is accepted": (
        {"FENCE"}, lambda: takeover().claim(2, OTHER).start(2, OTHER).effect(2, OTHER).end(2, OTHER).settle(1, CHILD, answer="SETTLE_OK")
        .row(attempts=2, crashes=1, fence=2),
    ),
    "settled twice": (
        {"FENCE"}, lambda: story().enqueue().claim().start().effect().end().settle(settle_id="one").settle(settle_id="two").row(),
    ),
    "a stale renewal is granted": (
        {"FENCE", "OVERLAP"}, lambda: takeover().claim(2, OTHER).wait(MS).renew().start(2, OTHER)
        .effect(2, OTHER).end(2, OTHER).settle(2, OTHER).row(attempts=2, crashes=1, fence=2),
    ),
    "an attempt too many in the row": ({"ATTEMPTS"}, lambda: story().enqueue().run().row(attempts=2)),
    "a claim that nobody made": ({"ATTEMPTS"}, lambda: story().enqueue().run(2).row(attempts=2, fence=2)),
    "a crash that nobody settled": ({"ATTEMPTS"}, lambda: story().enqueue().run().row(crashes=1)),
    "a failure that was not counted": (
        {"ATTEMPTS"}, lambda: failed_once().run(2)
        .row(attempts=2, fence=2),
    ),
    "a claim beyond the stored fence": (
        {"ATTEMPTS"}, lambda: failed_once().run(2)
        .row(attempts=1, failures=1, fence=1),
    ),
    "more starts than allowed": (
        {"ATTEMPTS"}, lambda: failed_once().run(2)
        .row(attempts=2, failures=1, fence=2, max_retries=0),
    ),
    "claimed before it was due": ({"EARLY"}, lambda: story().enqueue(delay_us=S).run().row()),
    "retried before it was due": (
        {"EARLY"}, lambda: story().enqueue().claim().start().end(how="error").settle(cause="failure", status="pending", due_us=S).run(2)
        .row(attempts=2, failures=1, fence=2),
    ),
    "the sink took an old fence": (
        {"EFFECT"}, lambda: takeover().claim(2, OTHER).start(2, OTHER).effect(2, OTHER).effect(1, keyed=False).end(2, OTHER)
        .settle(2, OTHER).row(attempts=2, crashes=1, fence=2),
    ),
    "two effects with one key": ({"EFFECT"}, lambda: story().enqueue().claim().start().effect().effect().end().settle().row()),
    "done without an effect": ({"EFFECT"}, lambda: story().enqueue().claim().settle().row()),
    "a child's job is left lying": (
        {"RECOVER"}, lambda: story().enqueue().claim().start().kill(CHILD).wait(1_500 * MS).crash().run(2)
        .row(attempts=2, crashes=1, fence=2),
    ),
    "a worker's job is left lying": (
        {"RECOVER"}, lambda: story().enqueue().claim().start().kill(PARENT, CHILD, how="kill worker").wait(LEASE_US + 1_500 * MS)
        .crash(1, OTHER, guard="lapsed").run(2, OTHER).row(attempts=2, crashes=1, fence=2),
    ),
    "left pending": ({"STATE"}, lambda: story().enqueue().row("pending", attempts=0, fence=0)),
    "done, and still held": ({"STATE"}, lambda: story().enqueue().run().row(owner="w", lease_until=1)),
    "pending, and not due at any time": ({"STATE"}, lambda: story().enqueue().row("pending", attempts=0, fence=0, run_at=None)),
    "done at no time": ({"STATE"}, lambda: story().enqueue().run().row(finished_at=None)),
    "acknowledged as done, stored as failed": (
        {"STATE"}, lambda: third_crash(story().enqueue()).effect(3).row("done", attempts=3, crashes=3, fence=3),
    ),
    "cancelled, and nobody asked for it": ({"STATE"}, lambda: story().enqueue().row("cancelled", attempts=0, fence=0)),
    "acknowledged as cancelled, and done": (
        {"STATE"}, lambda: story().enqueue().note("CANCEL", PRODUCER, job="a", how="cancelled").run().row(),
    ),
    "failed without three deaths": (
        {"STATE"}, lambda: story().enqueue().claim().start().end(how="error").settle(cause="failure", status="failed")
        .row("failed", failures=1),
    ),
    "charged with crashes that nobody has caused": (
        {"STATE", "ATTEMPTS"}, lambda: story().enqueue().claim().end().crash().claim(2).end(2).crash(2).claim(3).end(3)
        .crash(3, status="failed").row("failed", attempts=3, crashes=3, fence=3),
    ),
    **BAD_TIMES,
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_crime_is_seen(name: str) -> None:
    """The checks that are meant for it complain, and no other does."""
    checks, told = BAD[name]
    assert told().convicted() == checks


def test_every_check_was_seen_to_fail() -> None:
    """There is a crime for each of them that no other check would have seen."""
    assert {check for checks, _ in BAD.values() if len(checks) == 1 for check in checks} == set(CHECKS)


def test_figures_name_what_was_found() -> None:
    """Zeros stand beside their bound, and what was found is counted under its name."""
    good = story().enqueue().run().row().report()
    assert (good["jobs"], good["done"], good["starts"], good["starts_max"], good["seed"]) == (1, 1, 1, 1, 7)
    assert good["bounds"] == dict.fromkeys(good["bounds"], 3.0)
    bad = BAD["run again after success"][1]().report()
    assert (bad["rerun"], bad["violations"] > 0, "rerun" in bad["bounds"]) == (1, True, False)


def test_recovery_is_measured() -> None:
    """From the kill to the first write in another's name; the outage is taken off."""
    report = GOOD["a child died, its supervisor settled"]().report()
    assert (report["recoveries"], report["recoveries_worker"]) == (1, 0)
    assert 0 < report["recovery_child_max_s"] == report["recovery_max_s"] < 0.01
    report = GOOD["a worker died, a sweeper came"]().report()
    assert 2 < report["recovery_worker_max_s"] == report["recovery_max_s"] < 2.1
    assert report["recovery_child_max_s"] == 0
    assert GOOD["the store was down while a child died"]().report()["recovery_max_s"] < 0.1


def test_crashes_are_told_by_their_causes() -> None:
    """By a kill, by a pause, by an outage, or by nobody's hand: each under its own name."""
    stories = {
        "kill": GOOD["three deaths of its own"], "pause": GOOD["a stale holder is refused"],
        "outage": GOOD["the store was away for longer than the lease"], "": BAD["a lease that ran out for no reason"][1],
    }  # fmt: skip
    for cause, told in stories.items():
        report = told().report()
        names = ("crashes_by_kill", "crashes_by_pause", "crashes_by_outage", "crashes_unexplained")
        expected = f"crashes_by_{cause}" if cause else "crashes_unexplained"
        assert {name for name in names if report[name]} == {expected}
        assert sum(report[name] for name in names) == report["crashes"] > 0


def test_slack_excuses_a_loaded_machine_only_for_times() -> None:
    """What is late is forgiven, what is wrong is not."""
    assert BAD["a child's job is left lying"][1]().convicted(slack_s=5) == set()
    assert BAD["an idle worker sleeps on"][1]().convicted(slack_s=5) == set()
    assert BAD["a lease that ran out for no reason"][1]().convicted(slack_s=5) == set()
    assert BAD["a crash, and another's process was killed"][1]().convicted(slack_s=5) == {"ATTEMPTS"}
    assert BAD["run again after success"][1]().convicted(slack_s=5) == {"RERUN"}


def test_time_is_counted_once_where_outages_overlap() -> None:
    """Two outages at the same time are one, and so are an outage and a pause; what touches a time at its edge is not in it."""
    spans = Spans([(15, 30), (10, 20), (40, 50)])
    assert [covered(*time, spans) for time in [(0, 100), (12, 18), (25, 45), (31, 39)]] == [30, 6, 10, 0]
    spans.add(45, 60)
    assert covered(0, 100, spans, Spans([(5, 12), (55, 70)]), None) == 55
    assert [spans.touch(*time) for time in [(30, 40), (29, 40), (30, 41)]] == [False, True, True]
    assert [spans.ends_near(at, 5) for at in (25, 35, 36, 55, 66)] == [True, True, False, True, False]


@pytest.mark.parametrize("name, code", [("one run", 0), ("run again after success", 1)])
def test_the_checker_is_a_program_of_its_own(tmp_path: Path, name: str, code: int) -> None:
    """It reads two files, prints one JSON document and ends with 1 if there is a violation."""
    told = GOOD[name]() if name in GOOD else BAD[name][1]()
    command = [sys.executable, "-m", "mulligan.torture.checker", *map(str, told.write(tmp_path))]
    done = subprocess.run(command, capture_output=True, check=False)
    report = msgspec.json.decode(done.stdout)
    assert done.returncode == code
    assert len(report["ledger_sha256"]) == 64
    assert bool(report["violations"]) == bool(code)


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Lines keep their order and their facts; one that is not whole yet is left out; one too long is refused."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.note("CLAIM", job="a", fence=3, sent=5)
    ledger.note("START", job="b")
    with pytest.raises(ValueError, match="too long"):
        ledger.note("START", job="x" * 5_000)
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"EN')
    assert [(line.kind, line.job, line.fence, line.sent) for line in read_lines(path)] == [("CLAIM", "a", 3, 5), ("START", "b", 0, 0)]


def test_the_checker_knows_nothing_of_the_queue() -> None:
    """What it imports of the package is the reading of ledgers, and nothing else."""
    import ast

    import mulligan.torture as package

    folder = Path(package.__path__[0])
    allowed = {"checker", "checks", "counting", "findings", "history", "ledger", "spans", "timing"}
    for name in allowed:
        tree = ast.parse((folder / f"{name}.py").read_text("utf-8"))
        ours = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mulligan")}
        assert ours <= {f"mulligan.torture.{one}" for one in allowed}, name


def test_one_who_was_killed_with_its_supervisor_is_a_worker_s_loss() -> None:
    """A child whose supervisor dies before it could act is not held to the second that supervisors have."""
    told = story().enqueue().claim().start().kill(CHILD).kill(PARENT, how="kill worker").wait(LEASE_US).crash(1, OTHER, guard="lapsed")
    report = told.run(2, OTHER).row(attempts=2, crashes=1, fence=2).report()
    assert (report["violations"], report["recoveries"], report["recoveries_worker"]) == (0, 0, 1)
    assert OTHER_PARENT not in {line.pid for line in told.lines if line.kind == "CLAIM"}
