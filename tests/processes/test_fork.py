"""A forked child, as a preloading web server makes them, uses the app it inherited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mulligan.stores.network.inserts import OFTEN
from tests.conftest import BACKENDS, DURABLE, url_of

PROGRAM = """
import os, signal, sys
from mulligan import Mulligan

app = Mulligan(sys.argv[1])
app.declare("work")
for _ in range(int(sys.argv[2])):
    app.sync.enqueue("work")
child = os.fork()
if child == 0:
    signal.alarm(20)
    asyncio.run(beside_a_loop()) if sys.argv[2] == "loop" else app.sync.enqueue("work")
    os._exit(0)
_, status = os.waitpid(child, 0)
app.sync.enqueue("work")
print(os.waitstatus_to_exitcode(status), app.sync.status()["default"].ready)
"""


def said_by(program: str, backend: str, folder: Path, *words: str) -> list[str]:
    """The words that a program prints which is given a store, in a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-c", program, url_of(backend, folder), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


@pytest.mark.parametrize("before", [1, 2 * OFTEN])  # with many, the parent's loop has a connection of its own
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name in DURABLE])
def test_parent_and_forked_child_both_enqueue(tmp_path: Path, backend: str, before: int) -> None:
    """The child opens the store for itself at its first call, without hanging on threads that stayed with the parent."""
    assert said_by(PROGRAM, backend, tmp_path, str(before)) == ["0", str(before + 2)]


IN_THE_MIDDLE = """
import asyncio, os, signal, sys, threading
from mulligan import Mulligan

app = Mulligan(sys.argv[1])
app.declare("work")
parent = os.getpid()
entered, go_on = threading.Event(), threading.Event()

def hear(event):
    if os.getpid() == parent:
        entered.set()
        go_on.wait(20)

async def beside_a_loop():
    await app.open()
    await asyncio.to_thread(app.sync.enqueue, "work")

app.sync.enqueue("work")
app.events.subscribe(hear, ["ENQUEUED"])
thread = threading.Thread(target=app.sync.enqueue, args=["work"])
thread.start()
entered.wait(20)
child = os.fork()
if child == 0:
    signal.alarm(20)
    asyncio.run(beside_a_loop()) if sys.argv[2] == "loop" else app.sync.enqueue("work")
    os._exit(0)
_, status = os.waitpid(child, 0)
go_on.set()
thread.join()
print(os.waitstatus_to_exitcode(status), app.sync.status()["default"].ready)
"""


@pytest.mark.parametrize("opened_by", ["enqueue", "loop"])
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name in DURABLE])
def test_a_child_that_is_forked_in_the_middle_of_an_enqueue(tmp_path: Path, backend: str, opened_by: str) -> None:
    """While another thread tells a subscriber of its job, the main thread forks: the child enqueues all the same, whoever opens it."""
    assert said_by(IN_THE_MIDDLE, backend, tmp_path, opened_by) == ["0", "3"]
