"""Keeps a server, or the folder of a run, from outliving its owner: `python leash.py PLAN`, where PLAN is JSON.

A test run that is killed with -9 cannot clean up after itself. So each server is the child of a process like this one, which looks
twice a second whether the owner still lives, and on its end stops the server and removes its data. SIGTERM asks for the same.
One more such process, whose plan has no command, removes the folder of the run when its owner and all its servers are gone.
Started by its path with -I and -S, so it knows nothing but the standard library, and starts quickly.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

LOOK_S = 0.5
QUIT_S = 5.0
LAST_S = 60.0


class Asked(BaseException):
    """The owner wants the server gone."""


def main() -> None:
    """Stays until what it keeps is gone."""
    plan = json.loads(sys.argv[1])
    # What was started ends here, so that nobody has to wait for the one that stays: the system's first process inherits it.
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if plan["command"]:
        keep_server(plan)
    else:
        tell({})
        keep_folder(Path(plan["folder"]), plan["owner"])


def keep_server(plan: dict[str, Any]) -> None:
    """Starts the server, tells both process ids, and stays until the server is gone."""
    try:
        server = start(plan)
    except OSError as error:
        tell({"error": str(error)})
        return
    try:
        signal.signal(signal.SIGTERM, ask)
        tell({"leash": identity(os.getpid()), "server": identity(server.pid)})
        watch(server, plan["owner"])
    except Asked:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        clear(server, plan)


def start(plan: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The server, as another account where the plan names one; what it says goes to a file."""
    account = {} if plan["uid"] is None else {"user": plan["uid"], "group": plan["gid"], "extra_groups": []}
    with Path(plan["log"]).open("ab") as log:
        return subprocess.Popen(
            plan["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=plan["folder"],
            **account,
        )


def tell(answer: dict[str, Any]) -> None:
    """Answers on stdout and closes it: the owner reads until then."""
    os.write(1, json.dumps(answer).encode())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def watch(server: subprocess.Popen[bytes], owner: int) -> None:
    """Returns when the server has ended; raises Asked when its owner has."""
    born = birth(owner)
    while True:
        try:
            server.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            if born is None or birth(owner) != born:
                raise Asked from None
        else:
            return


def birth(pid: int) -> str | None:
    """What tells a process from a later one with the same id; None if it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except OSError:
            return None
        return "unknown"
    return None if state in "ZX" else fields[18]


def identity(pid: int) -> tuple[int, str | None]:
    """A process id and what makes it unique."""
    return pid, birth(pid)


def clear(server: subprocess.Popen[bytes], plan: dict[str, Any]) -> None:
    """Stops what still runs, then removes its folder. A server that ended by itself keeps its folder: it may be started again."""
    if server.poll() is not None:
        return
    server.send_signal(plan["signal"])
    try:
        server.wait(QUIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    shutil.rmtree(plan["folder"], ignore_errors=True)


def keep_folder(folder: Path, owner: int) -> None:
    """Removes the folder of a run, unless its owner does, when nothing of the run is left that could write there."""
    born = birth(owner)
    pause = threading.Event()
    while born is not None and birth(owner) == born:
        pause.wait(LOOK_S)
    for _ in range(int(LAST_S / LOOK_S)):
        if not any(is_kept(note) for note in folder.glob("*.leash")):
            break
        pause.wait(LOOK_S)
    shutil.rmtree(folder, ignore_errors=True)


def is_kept(note: Path) -> bool:
    """Whether the process noted there still watches over its server."""
    try:
        pid, born = json.loads(note.read_bytes())
    except OSError:
        return False  # The note has gone, and its server before it.
    return bool(birth(pid) == born)


def ask(_signal: int, _frame: object) -> None:
    """The answer to SIGTERM."""
    raise Asked


if __name__ == "__main__":
    main()
