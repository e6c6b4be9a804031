"""A worker process: `python -m tests.processes.server URL LEDGER SETTINGS`. Runs until its standard input says stop, or ends."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.processes.ledger import Ledger
from tests.processes.tasks import make_app


async def serve(url: str, ledger_path: str, settings: dict[str, Any]) -> None:
    """Serves until told to stop."""
    schedule = settings.pop("every", None)
    app = make_app(url, Ledger(Path(ledger_path)))
    told = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), told.set)
    async with app:
        if schedule is not None:
            await app.enqueue("quick", args=[0], interval=schedule, name="every", missed="all")
        async with app.worker(**settings):
            print("ready", flush=True)
            await told.wait()
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
