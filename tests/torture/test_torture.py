"""`mulligan torture` on every store: workers killed and stopped while jobs run, and the outside checker finds nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from mulligan.stores import is_shared
from tests.cli.commands import environment, run_command
from tests.torture.command import ROOT, Torture

ZEROS = ("violations", "lost", "rerun", "phantom", "over_limit", "stale_accepted", "overlap", "early", "effect")


@pytest.mark.timeout(400)
def test_nothing_is_lost_or_done_twice(torture: Torture) -> None:
    """2,000 jobs, 40 kill -9, 20 pauses past the lease: no violation, and every failed job shows three deaths of its own."""
    report = torture.run(jobs=2_000, kills=40, pauses=20)
    assert [report[name] for name in ZEROS] == [0] * len(ZEROS)
    assert "stuck" not in report
    assert (report["kills"], report["pauses"]) == (40, 20)
    assert sum(report["faults"].values()) >= 60
    assert report["jobs"] >= 2_000
    assert report["done"] + report["failed"] + report["cancelled"] >= report["jobs"]
    assert report["done_share"] > 0.98
    assert report["starts"] > report["jobs"]  # what was killed ran again
    assert report["recoveries"] + report["recoveries_worker"] > 20
    assert report["idle_spans"] > 0  # so that WAKE had something to look at
    assert set(report["bounds"]) == set(ZEROS) - {"violations"}


@pytest.mark.timeout(200)
def test_a_foreign_lock_on_the_file_stops_nothing_for_good(file_torture: Torture) -> None:
    """The file is locked for longer than a lease by a program that knows nothing of us (fault 40): all goes on afterwards."""
    report = file_torture.run(jobs=200, kills=4, pauses=0, restarts=1, restart_seconds=3)
    assert [report[name] for name in ZEROS] == [0] * len(ZEROS)
    assert (report["restarts"], report["faults"]["restart"]) == (1, 1)


@pytest.mark.timeout(100)
def test_ctrl_c_leaves_no_process_behind(file_torture: Torture) -> None:
    """Interrupted in the middle, it ends all that it has started, also what is stopped."""
    process = subprocess.Popen(
        file_torture.command(jobs=100_000, kills=1_000, pauses=1_000), cwd=ROOT, env=environment(), stdout=subprocess.PIPE
    )
    ledger = file_torture.ledger / "ledger.jsonl"
    told = threading.Event()
    while not (ledger.exists() and b'"how":"pause' in ledger.read_bytes()):
        assert process.poll() is None
        told.wait(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    pids = {line["pid"] for line in map(json.loads, ledger.read_text("utf-8").splitlines()) if line["kind"] == "UP"}
    assert len(pids) >= 4
    assert [pid for pid in pids if _is_ours(pid)] == []


def _is_ours(pid: int) -> bool:
    """Whether there is such a process, and it is one of a torture."""
    try:
        return b"mulligan.torture" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    "options, told",
    [
        (["--jobs", "0"], "--jobs"),
        (["--workers", "1"], "--workers"),
        (["--store", "memory://"], "memory://"),
        (["--store", "nonsense://x"], "not a store URL"),
        (["--store", "redis://localhost", "--restarts", "1"], "--restart-command"),
        (["--restart-command", "true"], "--restart-command"),
        (["--cuts", "1"], "--cuts"),
        (["--store", "rediss://localhost", "--cuts", "1"], "one server"),
        (["--store", "postgresql://one,two/jobs", "--cuts", "1"], "one server"),
        (["--ledger", "."], "--ledger"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(options: list[str], told: str) -> None:
    """Exit code 2, and the option is named, before anything is started."""
    answer = run_command("torture", *options)
    assert answer.code == 2
    assert told in answer.err


def test_the_simulation_is_behind_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """--sim plays seeds in this process; the number of jobs is its own unless given."""
    from mulligan.cli import torture_sim

    calls = []
    monkeypatch.setattr(torture_sim, "run_sim", lambda *given, **more: calls.append((given, more)) or 1)
    assert run_command("torture", "--sim", "--seeds", "3", "--seed", "9").code == 1
    assert run_command("torture", "--sim", "--jobs", "12", "--json").code == 1
    assert calls == [((3, 9, 0), {"as_json": False}), ((100, 1, 12), {"as_json": True})]


def test_an_app_that_is_only_imported_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the environment of a run there is no ledger, and the store is the one in memory."""
    from mulligan.torture.tasks import FOLDER_VARIABLE, make_app

    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert not is_shared(make_app().store.url)
    assert os.listdir(tmp_path) == []
