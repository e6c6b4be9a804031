"""Connections for threads that block: a few for the whole store, each in the hands of one thread at a time.

A thread takes the first that is free, so that one that is alone uses one. They are made when they are first needed, by the driver, and
used without its client, whose looks at pool and connection cost more than the call.

What the handler of a signal raises, Ctrl-C first of all, may come between any two steps of Python. So who has a connection is asked of
its lock, which compiled code lets go; and a connection counts as sound only while nothing is under way on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

import hiredis
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as DriverTimeoutError

from mulligan.core.errors import IllegalMove

_BUSY = object()


class Connection(Protocol):
    """What is used of the driver's."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_packed_command(self, command: Any, check_health: bool = True) -> None: ...
    def read_response(self) -> Any: ...


class _Line:
    """One connection: free ⇄ in use → closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._turn = threading.RLock()
        self._is_in_use = False  # by whoever has the turn, who may be interrupted by a call of his own thread
        self._is_sound = False  # connected, and no answer is owed
        self._is_closed = False

    def ask(self, packed: bytes, wait_s: float) -> Any:
        """What is answered, or _BUSY if others have had the connection all this time."""
        try:
            if not self._turn.acquire(timeout=wait_s) or self._is_in_use:
                return _BUSY
            if self._is_closed:
                raise IllegalMove("this store is closed: await store.open() first")
            return self._asked(packed)
        finally:
            try:  # noqa: SIM105 - suppress() is Python, before which a handler could raise and leave the lock taken for good
                self._turn.release()
            except RuntimeError:  # somebody else has it
                pass

    def _asked(self, packed: bytes) -> Any:
        connection = self._connection
        try:
            self._is_in_use = True
            if not self._is_sound:
                connection.disconnect()
                connection.connect()
            self._is_sound = False
            connection.send_packed_command([packed], check_health=False)
            answer = connection.read_response()
            self._is_sound = True
            return answer
        except ResponseError:  # an answer, too, and all of it
            self._is_sound = True
            raise
        except DriverTimeoutError as problem:
            raise TimeoutError(str(problem)) from problem
        finally:
            self._is_in_use = False

    def close(self, wait_s: float) -> None:
        if self._turn.acquire(timeout=wait_s):
            try:
                self._is_closed = True
                self._connection.disconnect()
            finally:
                self._turn.release()


class Lines:
    """All connections of one store for threads that block."""

    def __init__(self, make: Callable[[], Connection], many: int, wait_s: float) -> None:
        self._lines = [_Line(make()) for _ in range(many)]
        self._wait_s = wait_s  # for one that is free
        self._places = count()

    def execute_command(self, *words: bytes | str | int) -> Any:
        """Sends a command, and gives or raises what is answered. TimeoutError if there is no answer, or no connection is free."""
        packed = hiredis.pack_command(words)  # type: ignore[arg-type]
        for line in self._lines:
            answer = line.ask(packed, 0)
            if answer is not _BUSY:
                return answer
        answer = self._lines[next(self._places) % len(self._lines)].ask(packed, self._wait_s)
        if answer is _BUSY:
            raise TimeoutError("all connections are in use")
        return answer

    def close(self, wait_s: float) -> None:
        """Ends all of them, each after the call that is under way there."""
        for line in self._lines:
            line.close(wait_s)
