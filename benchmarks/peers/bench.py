"""One peer in one place, and the programs of its adapter."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.peers.environments import Environment
from benchmarks.peers.places import Place
from benchmarks.peers.programs import PeerFailed, Program
from benchmarks.peers.roster import Peer
from benchmarks.peers.work import Work

LOOK_S = 0.002


class Bench:
    """One peer in one place."""

    def __init__(self, peer: Peer, environment: Environment, place: Place, work: Work) -> None:
        self.peer, self.work, self.place = peer, work.scaled(peer.share), place
        self._environment = environment
        self.records = place.folder / "records"

    def program(self, *arguments: str, expect: int = 0) -> Program:
        """The adapter in one of its roles."""
        variables = {"BENCH_URL": self.place.url, "BENCH_RECORDS": str(self.records), "BENCH_EXPECT": str(expect)}
        variables["BENCH_TUNED"] = json.dumps({one.name: one.used for one in self.peer.tuned})
        return Program([*self._environment.command, *arguments], {**self._environment.variables, **variables}, self.place.folder)

    def prepare(self) -> None:
        """Makes tables and the like."""
        with self.program("prepare") as program:
            program.answer(self.work.answer_s)

    def enqueue(self, kind: str, count: int, how: str, **options: float) -> dict[str, Any]:
        """Enqueues, and gives what the adapter tells of it."""
        asked = ["enqueue", "--kind", kind, "--count", str(count), "--how", how]
        for name, value in options.items():
            asked += ["--" + name.replace("_", "-"), str(value)]
        with self.program(*asked) as program:
            return program.answer(self.work.drain_s)

    def loop(self, count: int) -> dict[str, float]:
        """A bare loop stores and settles so many jobs by itself; the seconds of both."""
        with self.program("loop", "--count", str(count)) as program:
            return program.answer(self.work.drain_s)

    def worker(self, expect: int = 0, *options: str) -> Program:
        """A worker that takes jobs from now on."""
        program = self.program("worker", *options, expect=expect)
        try:
            program.answer(self.work.answer_s)
        except BaseException:
            program.close()
            raise
        return program

    def left(self) -> Program:
        """A program that counts what the store does not hold as finished; it has counted once, so that it is quick."""
        program = self.program("left")
        try:
            program.answer(self.work.answer_s)
            program.ask(self.work.answer_s)
        except BaseException:
            program.close()
            raise
        return program

    def until(self, done: Callable[[], bool], worker: Program, so_far: Callable[[], str]) -> None:
        """Returns when it is done; PeerFailed if the worker has ended or the time is up."""
        limit = time.monotonic() + self.work.drain_s
        while not done():
            if not worker.running:
                worker.answer(1.0)  # raises with what it said
            if time.monotonic() > limit:
                raise PeerFailed(f"not done within {self.work.drain_s:g} s: {so_far()}")
            time.sleep(LOOK_S)
