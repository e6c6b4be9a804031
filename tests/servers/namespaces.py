"""Empty places for tests on the shared servers: one schema, database or key prefix each, used again and again.

Making one is slow, because the store then makes its tables in it; emptying one is quick. So each process keeps a few, empties one
that was used when it is handed out again, and takes back the one handed out longest ago when somebody forgot to give it back.
"""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
from collections import OrderedDict, deque

from tests.servers.places import PLACES, Places

HELD_MAX = 8


class Pool:
    """The namespaces of this process on one server."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._token = secrets.token_hex(4)
        self._names: list[str] = []  # All that were ever handed out.
        self._held: OrderedDict[str, str] = OrderedDict()
        self._free: deque[str] = deque()

    def hold(self, holder: str) -> str:
        """The URL of the holder's namespace: an empty one at the first call, the same one afterwards."""
        if holder not in self._held:
            while len(self._held) >= HELD_MAX:
                self.give_back(next(iter(self._held)))
            self._held[holder] = self._empty_one()
        self._held.move_to_end(holder)
        return self._places.url(self._held[holder])

    def give_back(self, holder: str) -> None:
        """The holder needs its namespace no more."""
        name = self._held.pop(holder, None)
        if name is not None:
            self._free.append(name)

    def give_back_url(self, url: str) -> None:
        """Gives back the namespace of this URL, whoever holds it."""
        for holder in [holder for holder, name in self._held.items() if self._places.url(name) == url]:
            self.give_back(holder)

    def give_back_all(self) -> None:
        """Nobody holds anything any more."""
        for holder in list(self._held):
            self.give_back(holder)

    def close(self) -> None:
        """Ends the connection. On a server that stays, the namespaces are removed first."""
        self._places.close(self._names)

    def _empty_one(self) -> str:
        while self._free:
            name = self._free.popleft()
            if self._places.empty(name):
                return name
        self._names.append(self._places.name(self._token, len(self._names) + 1))
        return self._names[-1]


_pools: dict[tuple[int, str], Pool] = {}
_fresh = itertools.count(1)


def held_url(kind: str, holder: str) -> str:
    """The URL of an empty namespace; the same one for the same holder until it is released."""
    # A forked child has connections of its own: what it inherited belongs to its parent.
    key = (os.getpid(), kind)
    if key not in _pools:
        _pools[key] = Pool(PLACES[kind]())
    return _pools[key].hold(holder)


def fresh_url(kind: str) -> str:
    """The URL of an empty namespace that nobody else holds."""
    return held_url(kind, f"fresh {next(_fresh)}")


def release(url: str) -> None:
    """Gives a namespace back."""
    for pool in _own_pools():
        pool.give_back_url(url)


def release_all() -> None:
    """Gives back all namespaces of this process."""
    for pool in _own_pools():
        pool.give_back_all()


def close_all() -> None:
    """Closes all connections of this process."""
    for pool in _own_pools():
        pool.close()
    for key in [key for key in _pools if key[0] == os.getpid()]:
        del _pools[key]


def _own_pools() -> list[Pool]:
    return [pool for (pid, _), pool in _pools.items() if pid == os.getpid()]


atexit.register(close_all)
