"""The folder of a test run: whose run it is, where its servers keep their data, and the end of both."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers import leash
from tests.servers.accounts import temporary_folder
from tests.servers.processes import Process, wait_until

# "process id of the owner:folder". Handed on to the workers of pytest-xdist and to the processes that tests start.
RUN_VARIABLE = "MULLIGAN_TEST_RUN"
END_S = 20.0


class Run(NamedTuple):
    """A test run: it ends with its owner, and its servers with it, even if it is killed."""

    owner: int
    folder: Path


def current_run() -> Run:
    """The run this process belongs to; if it belongs to none, it becomes the owner of a new one."""
    owner, _, folder = os.environ.get(RUN_VARIABLE, "").partition(":")
    if owner.isdecimal() and leash.birth(int(owner)) is not None:
        return Run(int(owner), Path(folder))
    run = Run(os.getpid(), temporary_folder() / f"mulligan-servers-{os.getpid()}-{secrets.token_hex(4)}")
    os.environ[RUN_VARIABLE] = f"{run.owner}:{run.folder}"
    atexit.register(end_run)
    return run


def run_folder() -> Path:
    """The folder, made when it is first needed, so that a run without servers leaves nothing behind."""
    owner, folder = current_run()
    try:
        folder.mkdir(mode=0o711)
    except FileExistsError:
        return folder
    folder.chmod(0o711)  # Whatever the umask: an unprivileged server passes through it to its own folder.
    keep({"owner": owner, "folder": str(folder), "command": None})
    return folder


def keep(plan: dict[str, Any]) -> dict[str, Any]:
    """Starts a process that sees to it that something ends with its owner (leash.py), and gives back what it tells."""
    keeper = [sys.executable, "-I", "-S", str(Path(leash.__file__).resolve()), json.dumps(plan)]
    answer = subprocess.run(keeper, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=END_S, check=False)
    told: dict[str, Any] = json.loads(answer.stdout or '{"error": "it could not be started"}')
    if "error" in told:
        raise OSError(f"{told['error']} {answer.stderr}")
    return told


def end_run() -> None:
    """Stops the servers of the run and removes its folder, if this process is its owner."""
    run = current_run()
    if run.owner != os.getpid() or not run.folder.exists():
        return
    keepers = [Process(*json.loads(note.read_bytes())) for note in run.folder.glob("*.leash")]
    for keeper in keepers:
        keeper.send(signal.SIGTERM)
    gone = wait_until(lambda: not any(keeper.alive for keeper in keepers), END_S)
    shutil.rmtree(run.folder, ignore_errors=True)
    if not gone:
        raise RuntimeError(f"these processes, which watch over servers, did not end: {[keeper.pid for keeper in keepers]}")
