"""Health: a file and two addresses that tell whether a worker lives and is ready, with and without a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from mulligan.cli import health
from mulligan.cli.health import Health, HealthOptions
from mulligan.stores import open_store
from tests.faults import FaultyStore
from tests.supervisor.fleet import Fleet


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def ask(port: int, path: str) -> tuple[int, Any]:
    """The status and the document of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body else None
    finally:
        connection.close()


def asked(port: int, path: str) -> tuple[int, Any] | None:
    try:
        return ask(port, path)
    except OSError:
        return None


@pytest.mark.parametrize("processes", [None, 2])
async def test_a_worker_tells_that_it_is_ready_and_that_it_stops(fleet: Fleet, processes: int | None) -> None:
    """Ready while it works, not ready but live while it stops, and no file is left of it."""
    port, file = free_port(), fleet.folder / "health.json"
    worker = fleet.launch("--health-port", port, "--health-file", file, processes=processes)
    await fleet.until(lambda: (asked(port, "/readyz") or (0, 0))[0] == 200, "it is ready")
    status, state = ask(port, "/livez")
    assert (status, state["live"], state["ready"], state["pid"]) == (200, True, True, worker.pid)
    assert ask(port, "/other")[0] == 404
    gate = fleet.folder / "gate"
    job_id = await fleet.enqueue("gated", str(gate))
    await fleet.noted("RUN", job_id)
    await fleet.until(lambda: ask(port, "/readyz")[1]["jobs"] == 1, "its job is counted")
    await fleet.until(lambda: json.loads(file.read_text())["ready"] is True, "the file says ready")
    await fleet.until(lambda: ask(port, "/readyz")[1]["processes"] == (processes or 1), "all processes are up")
    worker.send_signal(signal.SIGTERM)
    await fleet.until(lambda: ask(port, "/readyz")[0] == 503, "it stops")
    assert ask(port, "/readyz")[1]["why_not"] == "told to stop"
    assert ask(port, "/livez")[0] == 200
    await fleet.until(lambda: json.loads(file.read_text())["why_not"] == "told to stop", "the file says so")
    gate.touch()
    assert await fleet.ended(worker) == 0
    assert not file.exists()
    assert (await fleet.job(job_id)).status == "done"


async def test_a_store_that_does_not_answer_makes_it_unready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the store has answered, and from soon after its last answer; ready again when it is back."""
    monkeypatch.setattr(health, "EVERY_S", 0.01)
    monkeypatch.setattr(health, "ANSWER_S", 0.05)
    inner = open_store("memory://", clock=None)
    await inner.open()
    store = FaultyStore(inner)
    store.fail("queue_states", times=20)
    state: dict[str, Any] = {}
    port = free_port()
    up = [0, 0]

    async def until(ready: bool, why: str) -> None:
        while not (state["ready"] is ready and state["why_not"] == why):
            state.update(here.state())
            await asyncio.sleep(0.001)

    async with Health(HealthOptions(str(tmp_path / "h"), port), store, asyncio.Event(), lambda: (up[0], up[1])) as here:
        state.update(here.state())
        assert (state["ready"], state["why_not"]) == (False, "the store does not answer")
        await until(False, "no worker process is up")
        up[0] = 1
        await until(True, "")
        store.fail("queue_states", times=50)
        await until(False, "the store does not answer")
        await until(True, "")
    await inner.close()


async def test_a_stranger_on_the_port_does_no_harm(tmp_path: Path) -> None:
    """Nonsense, half a request and a huge one are answered by nothing or an error; the next request is served."""
    inner = open_store("memory://", clock=None)
    await inner.open()
    port = free_port()
    async with Health(HealthOptions(port=port), inner, asyncio.Event(), lambda: (1, 0)):
        for nonsense in (b"\r\n\r\n", b"GET\r\n\r\n", b"x" * 100_000, b"\0\xff \r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(nonsense)
            with contextlib.suppress(OSError):
                await asyncio.wait_for(reader.read(), 10)
            writer.close()
        status, _ = await asyncio.to_thread(ask, port, "/livez")
        assert status == 200
    await inner.close()
