"""Whether a worker lives and is ready, for whoever watches it: a small file that is replaced every second, or an HTTP port.

live: its loop turns. ready: the store answered lately, at least one process is up, and it was not told to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from mulligan.core.clock import SystemClock, us_to_datetime
from mulligan.core.contract import Store
from mulligan.core.errors import BadSetting

log = logging.getLogger("mulligan.health")
EVERY_S = 1.0
ANSWER_S = 5.0  # a store that has not answered for so long is not there
REQUEST_BYTES_MAX = 8_192
REQUEST_S = 5.0


class HealthOptions(NamedTuple):
    """Where the answer goes."""

    file: str | None = None
    port: int | None = None
    host: str = "127.0.0.1"


class Health:
    """`async with` keeps it up. `count` tells how many processes are up, and how many jobs they hold."""

    def __init__(self, options: HealthOptions, store: Store, stopping: asyncio.Event, count: Callable[[], tuple[int, int]]) -> None:
        self._options = options
        self._store = store
        self._stopping = stopping
        self._count = count
        self._answered_s: float | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Health:
        options = self._options
        if options.port is not None:
            try:
                self._server = await asyncio.start_server(self._answer, options.host, options.port, limit=REQUEST_BYTES_MAX)
            except OSError as error:
                raise BadSetting(f"--health-port {options.port} on {options.host} cannot be opened: {error}") from None
        if options.port is not None or options.file is not None:
            self._tasks.append(asyncio.create_task(self._ask_store()))
        if options.file is not None:
            self._tasks.append(asyncio.create_task(self._write_file(Path(options.file))))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        if self._options.file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._options.file)

    def state(self) -> dict[str, Any]:
        """What there is to tell now."""
        children, jobs = self._count()
        why = self._why_not(children)
        return {"live": True, "ready": not why, "why_not": why, "processes": children, "jobs": jobs, "pid": os.getpid()}

    def _why_not(self, children: int) -> str:
        if self._stopping.is_set():
            return "told to stop"
        if self._answered_s is None or asyncio.get_running_loop().time() - self._answered_s > ANSWER_S + 2 * EVERY_S:
            return "the store does not answer"
        return "" if children else "no worker process is up"

    async def _ask_store(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.wait_for(self._store.queue_states(), ANSWER_S)
                self._answered_s = loop.time()
            except Exception as error:  # noqa: BLE001 - also that it is not open yet: all of them mean that it does not answer
                log.debug("the store does not answer: %s", error)
            await asyncio.sleep(EVERY_S / 5 if self._answered_s is None else EVERY_S)

    async def _write_file(self, path: Path) -> None:
        clock, told = SystemClock(), False
        beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        while True:
            try:
                beside.write_text(json.dumps({**self.state(), "at": us_to_datetime(clock.now_us()).isoformat()}) + "\n", "utf-8")
                beside.replace(path)
                told = False
            except OSError as error:
                if not told:
                    log.error("the health file cannot be written: %s", error)
                told = True
            await asyncio.sleep(EVERY_S if self.state()["ready"] else EVERY_S / 5)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S)
            path = [*head.split(b" ", 2), b""][1].split(b"?")[0]
            state = self.state()
            good = {b"/livez": True, b"/readyz": state["ready"]}.get(path)
            status = "404 Not Found" if good is None else "200 OK" if good else "503 Service Unavailable"
            body = b"" if good is None else json.dumps(state).encode() + b"\n"
            top = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(top.encode() + body)
            await asyncio.wait_for(writer.drain(), REQUEST_S)
        writer.close()
