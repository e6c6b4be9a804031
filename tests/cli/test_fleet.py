"""`--processes N`: a parent that keeps N workers running."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.commands import ended, line_with, started
from tests.cli.test_worker import PROGRAM, enqueue, job_of


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program in it."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    return tmp_path


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_children_are_kept_running_and_stopped(program: Path) -> None:
    """Two processes start; one that is killed is replaced; a signal to the parent stops all of them gently."""
    with started("worker", "shop:app", "--processes", "2", "--json", folder=program) as process:
        pids = {json.loads(line_with(process, "concurrency"))["pid"] for _ in range(2)}
        assert len(pids) == 2
        assert process.pid not in pids
        victim = min(pids)
        os.kill(victim, signal.SIGKILL)
        replacement = json.loads(line_with(process, "concurrency"))["pid"]
        assert replacement not in pids
        line_with(process, f"ended with signal {signal.SIGKILL} (SIGKILL); starting another one at once", err=True)
        enqueue(program, "quick", "with the new one")
        line_with(process, "ran with the new one")
        process.send_signal(signal.SIGTERM)
        answer = ended(process)
    assert answer.code == 0
    assert answer.out.count("shut down") == 2
    assert not any(is_alive(pid) for pid in {*pids, replacement})


def test_a_signal_reaches_the_children_once(program: Path) -> None:
    """Ctrl-C at the parent is passed on once: the running job may finish, it is not hurried."""
    job_id = enqueue(program, "slow", 0.5)
    with started("worker", "shop:app", "--processes", "2", folder=program) as process:
        line_with(process, "slow begins")
        process.send_signal(signal.SIGINT)
        answer = ended(process)
    assert answer.code == 0
    assert "told to stop again" not in answer.err
    assert job_of(program, job_id).status == "done"


def test_children_end_with_their_parent(program: Path) -> None:
    """If the parent is killed, its children notice and stop by themselves, giving back what they hold."""
    job_id = enqueue(program, "slow", 1_000)
    with started("worker", "shop:app", "--processes", "2", "--grace", "0.1", folder=program) as process:
        line_with(process, "slow begins")
        process.kill()
        answer = ended(process)  # its pipes end only when the last child has ended
    assert answer.out.count("shut down") == 2
    assert "the process that started this one is gone" in answer.err
    job = job_of(program, job_id)
    assert (job.status, job.attempts) == ("pending", 0)
    assert job.releases >= 1  # the second child may have claimed it after the first gave it back
