"""A wire that counts round trips, whatever the protocol: one is each time the client speaks again after the server has spoken."""

from __future__ import annotations

from collections.abc import Callable

from tests.servers import Proxy
from tests.servers.wire import Pair, Side


class CountedWire(Proxy):
    """Forwards everything. Requests that are sent without waiting for the answers in between are one trip, and so is a long one."""

    def __init__(self, target: str) -> None:
        self.trips = 0
        self.bytes_sent = 0  # by the client
        self.bytes_got = 0
        super().__init__(target)

    def reset(self) -> None:
        """Begins to count anew."""
        self.trips = self.bytes_sent = self.bytes_got = 0

    def _accept(self) -> None:
        before = set(self._pairs)
        super()._accept()
        for pair in self._pairs - before:
            self._count(pair)

    def _count(self, pair: Pair) -> None:
        client_spoke_last = False

        def on_request(data: bytes) -> None:
            nonlocal client_spoke_last
            self.trips += not client_spoke_last
            self.bytes_sent += len(data)
            client_spoke_last = True

        def on_answer(data: bytes) -> None:
            nonlocal client_spoke_last
            self.bytes_got += len(data)
            client_spoke_last = False

        _overhear(pair.server, on_request)
        _overhear(pair.client, on_answer)


def _overhear(side: Side, heard: Callable[[bytes], None]) -> None:
    """Tells of everything that is handed to this side."""
    give = side.give

    def give_and_tell(data: bytes, delay_s: float) -> None:
        heard(data)
        give(data, delay_s)

    side.give = give_and_tell  # type: ignore[method-assign]
