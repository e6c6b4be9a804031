"""A server that is restarted when a command of the torture asks for it: the command speaks to the test, which owns the server."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import Server


class Restarter:
    """Listens on a socket; each connection stops the server at once, as a crash would, and starts it again before it is answered."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._path = folder / "restart.sock"
        self._socket = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self.restarts = 0

    @property
    def command(self) -> str:
        """What to type after --restart-command."""
        return f"{sys.executable} -m tests.torture.restarting {self._path}"

    def _listen(self) -> None:
        while True:
            try:
                asker, _ = self._socket.accept()
            except OSError:
                return
            with asker:
                self._server.stop(immediate=True)
                self._server.start()
                self.restarts += 1
                asker.sendall(b"up")

    def __enter__(self) -> Self:
        self._socket.bind(str(self._path))
        self._socket.listen()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(sys.argv[1])
        sys.exit(asking.recv(2) != b"up")
