from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.cli.commands import LIMIT_S, ended, environment, line_with, run_command, started
from tests.cli.conftest import Run


def temporary(folder: Path) -> dict[str, str]:
    """Where the demo puts its file, so that the test can look whether it is gone."""
    place = folder / "tmp"
    place.mkdir()
    return {"TMPDIR": str(place)}


def test_demo_ends_by_itself_and_counts(folder: Path) -> None:
    """The last line holds the counts: jobs done, retried, recovered and failed, and none is missing. Nothing is left behind."""
    place = temporary(folder)
    with started("demo", "--for", "4", "--json", folder=folder, **place) as process:
        answer = ended(process)
    assert answer.code == 0, answer.err
    assert len(answer.out.splitlines()) == 1
    counts = json.loads(answer.out)
    assert min(counts["done"], counts["retried"], counts["failed"], counts["recovered"]) > 0
    assert counts["enqueued"] == counts["done"] + counts["failed"] + counts["cancelled"] + counts["running"] + counts["waiting"]
    assert counts["running"] == 0
    assert list((folder / "tmp").iterdir()) == []
    assert list(folder.iterdir()) == [folder / "tmp"]


def test_demo_shows_itself_until_interrupted(folder: Path) -> None:
    """Away from a terminal it prints a line now and then; another process can look at it; Ctrl-C is its normal end."""
    place = temporary(folder)
    with started("demo", folder=folder, **place) as process:
        url = line_with(process, "another terminal").split()[-1]
        hint = line_with(process, "Ask why: ").split()
        job_id = hint[hint.index("why") + 1]
        line_with(process, "waiting to retry")
        story = run_command("why", job_id, "--store", url)
        assert story.code == 0
        assert "hopeless" in story.out
        assert run_command("status", "--store", url, "--json").json["queues"][0]["region"] == "demo"
        process.send_signal(signal.SIGINT)
        answer = ended(process)
    assert answer.code == 0
    assert "It gave up at" in answer.out
    assert " retries, " in answer.out.splitlines()[-1]
    assert "Traceback" not in answer.err
    assert list((folder / "tmp").iterdir()) == []


def test_demo_keeps_a_named_store(run: Run, folder: Path) -> None:
    """With --store the file stays, a second demo counts only its own jobs, and the environment is not asked."""
    for _ in range(2):
        with started(
            "demo", "--for", "1", "--json", "--store", "sqlite:///kept.db", folder=folder, MULLIGAN_STORE="sqlite:///env.db"
        ) as process:
            counts = ended(process).lines[-1]
        assert counts["enqueued"] < 40
    assert run("status", "--store", "sqlite:///kept.db").code == 0
    assert not (folder / "env.db").exists()


def test_demo_refuses_what_it_cannot_use(run: Run) -> None:
    """A store of one process, or no time at all, are usage errors."""
    assert run("demo", "--for", "1", "--store", "memory://").code == 2
    assert run("demo", "--for", "0").code == 2


def test_demo_is_alive_on_a_terminal(folder: Path) -> None:
    """On a terminal one line is drawn again and again, and the hint stands above it."""
    controller, terminal = os.openpty()
    command = [sys.executable, "-m", "mulligan", "demo", "--for", "2.5"]
    shown = environment(TERM="xterm-256color", TMPDIR=temporary(folder)["TMPDIR"])
    with subprocess.Popen(command, cwd=folder, env=shown, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        seen = b""
        with suppress(OSError):  # how the end of the other side is told
            while part := os.read(controller, 4096):
                seen += part
        assert process.wait(LIMIT_S) == 0
    os.close(controller)
    text = seen.decode()
    assert text.count("waiting to retry") > 3
    assert "\x1b[2K" in text  # a line that is erased before it is drawn anew
    assert re.search(r"Ask why: \S*.*mulligan why [0-9a-f-]{36}", text)
