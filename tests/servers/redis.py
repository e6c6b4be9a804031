"""Redis (or Valkey) with its append-only file on."""

from __future__ import annotations

import functools
import re
import socket
import subprocess

from tests.servers.ports import HOST
from tests.servers.programs import redis_server
from tests.servers.server import Server


class Redis(Server):
    """A Redis server that writes every change to its file and syncs it once a second."""

    kind = "redis"

    def __init__(self, *, owner: int | None = None, options: dict[str, str] | None = None) -> None:
        super().__init__(owner=owner)
        self.options = options or {}

    @property
    def url(self) -> str:
        """The address of its first database."""
        return f"redis://{HOST}:{self.port}/0"

    def prepare(self) -> None:
        """The server makes its files by itself."""

    def command(self) -> list[str]:
        """Durable, and without the occasional snapshot."""
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.folder),
            "daemonize": "no",
            "databases": "16",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            **_debugging(),
            **self.options,
        }
        return [str(redis_server()), *(word for name, value in options.items() for word in (f"--{name}", value))]

    def answers(self) -> bool:
        """It says so itself once its file is loaded."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith(b"+PONG")
        except OSError:
            return False


@functools.cache
def _debugging() -> dict[str, str]:
    """Since version 7 a server must be told that tests may use DEBUG; before, it does not know the option."""
    shown = subprocess.run([str(redis_server()), "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\d+)", shown)
    return {"enable-debug-command": "local"} if version is not None and int(version.group(1)) >= 7 else {}
