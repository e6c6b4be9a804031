"""Wake-ups between processes: a hint that there may be work, sent as a datagram to a socket of each sleeper.

The sockets lie in a short folder of this user's own, one per database, because the path of a socket may have no more than about a
hundred bytes. Where no such folder can be had (or none that is safe), there are no hints between processes and polling alone
finds the work.

A sender must not pay for sleepers that do not sleep. So a flag in shared memory (filelock.py) says whether anybody wants a hint: it is
raised when an ear is made and each time it has taken a hint in, and lowered by whoever sends the next one. While all are busy,
announcing costs one look at that flag.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import stat
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from mulligan.core.errors import IllegalMove
from mulligan.stores.sqlite.filelock import ARMED, FileLock

_BASE = Path("/tmp")  # noqa: S108 - short on every system; what is in it is checked before use
_PATH_BYTES_MAX = 103  # macOS; Linux allows four more
_LEAVERS_MAX = 20  # processes that may leave, one after the other, while one comes
_numbers = itertools.count(1)
Result = TypeVar("Result")


class Wakeups:
    """All ears of one open store, and the way to those of other processes."""

    def __init__(self, database: str, lock: FileLock, base: Path = _BASE) -> None:
        self._shared = lock
        self._lock = threading.Lock()
        self._ears: set[SocketListener] = set()
        self._sender: socket.socket | None = None
        self._closed = False
        self._folder = base / f"mulligan-{os.geteuid()}" / sha256(os.fsencode(database)).hexdigest()[:12]
        self.trouble = self._why_not()  # empty: hints reach other processes

    def listen(self) -> SocketListener:
        """A new ear."""
        with self._lock:
            if self._closed:
                raise IllegalMove("this store is closed: await store.open() first")
            ear = SocketListener(self._bind(), self._arm, self._forget)
            self._ears.add(ear)
        self._arm()
        return ear

    def announce(self) -> None:
        """Hints to every ear of this process, and to those of others if one of them wants it. Never waits, never fails."""
        with self._lock:
            if self._closed:
                return
            ears = list(self._ears)
            if self._shared.flags[ARMED] and not self.trouble:
                # Lowered before the sockets are listed: an ear that is made in between raises it again, and gets the next hint.
                self._shared.flags[ARMED] = 0
                self._send({ear.name for ear in ears})
        for ear in ears:
            ear.hint()

    def close(self) -> None:
        """Ends all waits of this process."""
        with self._lock:
            self._closed = True
            ears = list(self._ears)
            if self._sender is not None:
                self._sender.close()
        for ear in ears:
            ear.close()
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # succeeds for the last one only

    def _send(self, own: set[str]) -> None:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            if name in own:
                continue
            if self._sender is None:
                self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._sender.setblocking(False)
            path = self._folder / name
            try:
                self._sender.sendto(b"!", str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)  # Its owner ended without closing it.
            except OSError:
                continue  # A full buffer means that it has hints enough.

    def _bind(self) -> socket.socket | None:
        if self.trouble:
            return None
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        name = f"{os.getpid():x}-{next(_numbers):x}"

        def bind() -> None:
            self._make_folder()
            ear.bind(str(self._folder / name))

        try:
            _while_others_leave(bind)
        except OSError as problem:
            ear.close()
            self.trouble = f"no socket can be made in {self._folder}: {problem.strerror}"
            return None
        return ear

    def _why_not(self) -> str:
        if len(os.fsencode(self._folder)) + 20 > _PATH_BYTES_MAX:
            return f"the path of {self._folder} is too long for a socket"
        folders = (self._folder.parent, self._folder)

        def make_and_look() -> list[os.stat_result]:
            self._make_folder()
            return [os.lstat(folder) for folder in folders]

        try:
            found = _while_others_leave(make_and_look)
        except OSError as problem:
            return f"{self._folder} cannot be made: {problem.strerror}"
        for folder, seen in zip(folders, found, strict=True):
            if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
                return f"{folder} is not a folder of this user alone"
        return ""

    def _make_folder(self) -> None:
        for folder in (self._folder.parent, self._folder):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)

    def _arm(self) -> None:
        with self._lock:
            if not self._closed:
                self._shared.flags[ARMED] = 1

    def _forget(self, ear: SocketListener) -> None:
        with self._lock:
            self._ears.discard(ear)
        if ear.name:
            (self._folder / ear.name).unlink(missing_ok=True)


def _while_others_leave(step: Callable[[], Result]) -> Result:
    """The step's answer. The last to leave removes the folder, so it may be gone again by the time it is used; then it is made anew."""
    for _ in range(_LEAVERS_MAX):
        with contextlib.suppress(FileNotFoundError):
            return step()
    return step()


class SocketListener:
    """One sleeper's ear. It is hinted or not, and closed or not; a hint that comes before the wait is kept for it."""

    def __init__(self, ear: socket.socket | None, arm: Callable[[], None], forget: Callable[[SocketListener], None]) -> None:
        self._ear = ear
        self._arm = arm
        self._forget = forget
        self._lock = threading.Lock()
        self._hinted = False
        self._closed = False
        self._sleeper: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self.name = "" if ear is None else os.path.basename(ear.getsockname())

    async def wait(self, timeout_s: float) -> bool:
        """True as soon as a hint has come since the last wait; False when the time is over or the listener is closed."""
        if not self._is_hinted():
            await self._sleep(timeout_s)
        with self._lock:
            hinted, self._hinted = self._hinted, False
        if hinted:
            self._arm()
        return hinted

    async def _sleep(self, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        alarm: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._hinted or self._closed:
                return
            self._sleeper = (loop, alarm)
        timer = loop.call_later(max(0.0, timeout_s), _ring, alarm)
        descriptor = self._watch(loop, alarm)
        try:
            await alarm
        finally:
            timer.cancel()
            if descriptor is not None:
                loop.remove_reader(descriptor)
            self._is_hinted()
            with self._lock:
                self._sleeper = None
                if self._closed:
                    self._close_ear()

    def _watch(self, loop: asyncio.AbstractEventLoop, alarm: asyncio.Future[None]) -> int | None:
        """Lets a datagram ring the alarm; a loop that cannot watch a socket still gets the hints of its own process."""
        if self._ear is None:
            return None
        descriptor = self._ear.fileno()
        try:
            loop.add_reader(descriptor, _ring, alarm)
        except (NotImplementedError, ValueError, OSError):
            return None
        return descriptor

    def _is_hinted(self) -> bool:
        """Takes in what has come; whether there was anything."""
        came = False
        if self._ear is not None:
            with contextlib.suppress(OSError):  # nothing (more) there, or closed meanwhile
                while self._ear.recv(16):
                    came = True
        with self._lock:
            self._hinted = self._hinted or came
            return self._hinted

    def hint(self) -> None:
        """Wakes the sleeper, or lets its next wait end at once."""
        with self._lock:
            if not self._hinted:
                self._hinted = True
                self._wake()

    def close(self) -> None:
        """Ends a running wait, and gets no more hints."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wake()
            if self._sleeper is None:
                self._close_ear()  # Otherwise the sleeper does, because its loop still watches the socket.
        self._forget(self)

    def _close_ear(self) -> None:
        if self._ear is not None:
            self._ear.close()

    def _wake(self) -> None:
        if self._sleeper is None:
            return
        loop, alarm = self._sleeper
        try:
            loop.call_soon_threadsafe(_ring, alarm)
        except RuntimeError:
            self._sleeper = None  # Its loop was closed while it slept; nobody is left to wake.


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)
