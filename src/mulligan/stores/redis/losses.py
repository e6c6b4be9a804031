"""Noticing that a server has lost data: a flush, a restart without its file, a fail-over to a replica that lagged behind.

Every app has an epoch, a random name made once, and a beat, a number that every write raises. An answer under another epoch, or with a
beat below one that was known before the question was sent, comes from data that lacks acknowledged writes.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

import msgspec

LOSSES_MAX = 20
log = logging.getLogger("mulligan.redis")


class Known(NamedTuple):
    """What was known of the server when a question was sent."""

    epoch: bytes
    beat: int


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One time at which data was found to be missing."""

    at_us: int  # the store's time of the answer that showed it
    what: str


class Losses:
    """The highest beat seen of one server, and the losses found. Told by every loop that writes: what they say at the same moment may
    be told twice, or known a moment later."""

    def __init__(self, where: str) -> None:
        self._where = where
        self.known = Known(b"", 0)
        self.found: deque[Loss] = deque(maxlen=LOSSES_MAX)
        self.unrecorded: list[Loss] = []  # still to be written into the store's own list

    def begin(self) -> None:
        """Forgets what was known: a store that is opened again meets the server anew."""
        self.known = Known(b"", 0)

    def notice(self, known: Known, epoch: bytes, beat: int, now_us: int) -> None:
        """Compares an answer with what was known when it was asked for."""
        if known.epoch and known.epoch == self.known.epoch:
            if epoch != known.epoch:
                what = "all keys are gone" if not epoch else "the keys are those of another epoch"
                self._lost(now_us, f"{what}; jobs stored before are lost")
                self.known = Known(epoch, beat)
                return
            if beat < known.beat and self.known.beat >= known.beat:
                self._lost(now_us, f"the last {known.beat - beat:,} writes or more are missing; their jobs may be lost or run again")
                self.known = Known(epoch, beat)
                return
        if not self.known.epoch or (epoch == self.known.epoch and beat > self.known.beat):
            self.known = Known(epoch, beat)

    def _lost(self, now_us: int, what: str) -> None:
        loss = Loss(at_us=now_us, what=what)
        self.found.append(loss)
        self.unrecorded.append(loss)
        log.error("%s has lost data: %s. Was it flushed, restarted without its file, or replaced by a replica?", self._where, what)
