from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.environments import ADAPTERS

NODE = """
const { crowded } = require(process.argv[1]);
const seen = [];
let now = 0, most = 0;
const sender = { one: async (kind, number) => {
  now += 1; most = Math.max(most, now);
  await new Promise((resolve) => setImmediate(resolve));
  now -= 1; seen.push(number);
} };
const asked = { kind: "noop", count: 250, first: 1000, perS: Number(process.argv[2]), told: 1 };
crowded(sender, asked).then((told) => console.log(JSON.stringify({ ...told, seen, most })));
"""
FIRST, COUNT = 1_000, 250


@pytest.fixture
def crowd_of() -> Iterator[Any]:
    """The crowd of the adapters, which have no package."""
    sys.path.insert(0, str(ADAPTERS))
    try:
        from crowd import Crowd

        yield Crowd
    finally:
        sys.path.remove(str(ADAPTERS))


class Waiting:
    """Notes how many callers wait at once."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.now = self.most = 0

    async def one(self, _kind: str, number: int) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        self.seen.append(number)


class Blocking:
    """The same for threads, which may end in any order; one number can be refused."""

    def __init__(self, refused: int = -1) -> None:
        self.seen: list[int] = []
        self.refused = refused

    def one(self, _kind: str, number: int) -> None:
        if number == self.refused:
            raise ZeroDivisionError(number)
        self.seen.append(number)


@pytest.mark.parametrize("per_s", [0.0, 1_000_000.0])
async def test_a_hundred_callers_send_each_job_once(per_s: float, crowd_of: Any) -> None:
    """Each waits for its own call before the next, as fast as they can or at a rate; each job has its time."""
    sender = Waiting()
    crowd = crowd_of(sender, "noop", range(FIRST, FIRST + COUNT), per_s)
    assert await crowd.run() > 0
    assert sorted(sender.seen) == list(range(FIRST, FIRST + COUNT))
    assert sender.most <= crowd.callers == 100
    assert all(crowd.sent_ns)


async def test_a_sender_that_blocks_gets_threads(crowd_of: Any) -> None:
    """As many, and each job once."""
    sender = Blocking()
    crowd = crowd_of(sender, "noop", range(COUNT), 1_000_000.0)
    await crowd.run()
    assert sorted(sender.seen) == list(range(COUNT))
    assert all(crowd.sent_ns)


@pytest.mark.parametrize("refused", [3, 203])
async def test_what_a_thread_raises_is_an_error_of_the_crowd(refused: int, crowd_of: Any) -> None:
    """In its first call, when the others wait for it, and later."""
    with pytest.raises(ZeroDivisionError):
        await crowd_of(Blocking(refused), "noop", range(COUNT), 0.0).run()


async def test_very_few_jobs_have_fewer_callers(crowd_of: Any) -> None:
    """So that something is left to be timed."""
    crowd = crowd_of(Waiting(), "noop", range(9), 0.0)
    await crowd.run()
    assert crowd.callers == 4


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is there where the peers that need it are measured")
@pytest.mark.parametrize("per_s", ["0", "100000"])
def test_the_crowd_of_node_is_the_same(per_s: str) -> None:
    """The same callers, numbers and answer."""
    told = json.loads(
        subprocess.run(["node", "-e", NODE, str(Path(ADAPTERS) / "crowd.js"), per_s], capture_output=True, check=True, timeout=50).stdout
    )
    assert sorted(told["seen"]) == list(range(FIRST, FIRST + COUNT))
    assert told["most"] <= told["callers"] == 100
    assert told["timed"] == COUNT - told["callers"]
    assert len(told["sent_ns"]) == COUNT
    assert all(told["sent_ns"])


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is there where the peers that need it are measured")
def test_a_long_answer_of_node_arrives_whole(tmp_path: Path) -> None:
    """Longer than a pipe holds at a time; the adapter does not end before it is read."""
    peer = tmp_path / "peer.js"
    peer.write_text(f'require("{Path(ADAPTERS) / "adapter.js"}").main({{ sender: async () => ({{ one: async () => {{}} }}) }});', "utf-8")
    asked = ["node", str(peer), "enqueue", "--how", "crowd", "--told", "1", "--count", str(20 * COUNT)]
    told = json.loads(subprocess.run(asked, capture_output=True, check=True, timeout=50).stdout)
    assert len(told["sent_ns"]) == 20 * COUNT
