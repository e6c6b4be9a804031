"""The servers all processes of a test run share: started by whoever asks first, ended with the run."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from tests.servers.folder import current_run, run_folder
from tests.servers.mongo import Mongo
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import Server

KINDS: dict[str, type[Server]] = {"postgres": Postgres, "mongo": Mongo, "redis": Redis}
# Servers that are there already, to be used instead of our own.
OVERRIDES = {
    "postgres": "MULLIGAN_TEST_POSTGRES_URL",
    "mongo": "MULLIGAN_TEST_MONGODB_URL",
    "redis": "MULLIGAN_TEST_REDIS_URL",
}


def server_url(kind: str) -> str:
    """The address of the run's server of this kind."""
    given = os.environ.get(OVERRIDES[kind])
    if given:
        return given
    answer = run_folder() / f"{kind}.json"
    if not answer.exists():
        with (run_folder() / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not answer.exists():
                _start(kind, answer)
    return str(json.loads(answer.read_text("utf-8"))["url"])


def _start(kind: str, answer: Path) -> None:
    server = KINDS[kind](owner=current_run().owner).start()
    whole = answer.with_suffix(".new")
    whole.write_text(json.dumps({"url": server.url, "pid": server.pid}), "utf-8")
    whole.replace(answer)
