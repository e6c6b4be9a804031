"""Starts a script of this folder in a process that ends with its parent: `python -m tests.processes.launch SCRIPT ARGS`.

A test run that is killed cannot clean up after itself; what it started must not go on working for ever.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading

LOOK_S = 0.5


def end_with(parent: int) -> None:
    """Watches for the parent's end from a thread of its own."""

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(LOOK_S)
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    script = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_module(f"tests.processes.{script}", run_name="__main__", alter_sys=True)
