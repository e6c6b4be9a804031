"""The cost of every call on stores of several sizes, in turns, and how many bytes a job takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks.growth.calls import CALLS, Scene
from benchmarks.growth.kinds import KINDS, fill
from benchmarks.growth.sites import Sites
from benchmarks.soak.sizes import bytes_of

from mulligan.core.contract import Store
from mulligan.core.errors import StoreError
from mulligan.core.ids import new_id
from mulligan.stores import open_store
from tests.flat.examined import at_rest

SLOW_S = 0.5  # a call that takes longer is measured in the first rounds only
SLOW_ROUNDS = 3
PATIENCE_S = 300.0
STEPS = 20  # how often the progress of a fill is told
Say = Callable[[str], None]


class Filled(NamedTuple):
    """A store of one size."""

    size: int
    store: Store
    scene: Scene
    bytes_per_job: float
    failed: dict[str, str]  # by call: why it got no answer


def sizes_of(size: int, smallest: int, grow: Sequence[str]) -> dict[str, int]:
    """How many of each kind; those that shall not grow stay at the smallest size."""
    return {kind: size if kind in grow else smallest for kind in KINDS}


async def measured(sites: Sites, store: str, sizes: Sequence[int], grow: Sequence[str], rounds: int, say: Say) -> dict[str, Any]:
    """Seconds of each call, by call and size, a list of rounds; and bytes per job by size."""
    times: dict[str, dict[str, list[float]]] = {name: {str(size): [] for size in sizes} for name in CALLS}
    with ExitStack() as stack:
        filled: list[Filled] = []
        try:
            for size in sizes:
                url = stack.enter_context(sites.site(store))
                filled.append(await _filled(store, url, size, sizes_of(size, min(sizes), grow), say))
            server = sites.server(store)
            if server is not None:
                await at_rest(server)
            for one in filled:
                await _measure(one, {name: {str(one.size): []} for name in CALLS}, 0)  # what only a first call costs is not measured
            for number in range(rounds):
                for one in filled[number % len(filled) :] + filled[: number % len(filled)]:
                    await _measure(one, times, number)
                say(f"{store}: round {number + 1} of {rounds}")
        finally:
            for one in filled:
                await one.store.close()
    failed = {str(one.size): one.failed for one in filled if one.failed}
    return {"times_s": times, "bytes_per_job": {str(one.size): one.bytes_per_job for one in filled}, "failed": failed}


async def _filled(kind: str, url: str, size: int, sizes: Mapping[str, int], say: Say) -> Filled:
    store = open_store(url)
    await store.open()
    before = await size_of(url)
    told, began = 0, time.perf_counter()

    def progress(stored: int, of: int) -> None:
        nonlocal told
        if stored * STEPS // of > told:
            told = stored * STEPS // of
            say(f"{kind}: {stored:,} of {of:,} jobs stored, {time.perf_counter() - began:.0f} s")

    scene = Scene(await fill(store, sizes, progress))
    grown = await size_of(url) - before
    await scene.prepare(store)
    return Filled(size, store, scene, grown / sum(sizes.values()), {})


async def _measure(one: Filled, times: Mapping[str, Mapping[str, list[float]]], number: int) -> None:
    for name, call in CALLS.items():
        so_far = times[name][str(one.size)]
        if number >= SLOW_ROUNDS and min(so_far) > SLOW_S:
            continue
        began = time.perf_counter()
        try:
            await call(one.store, one.scene)
        except StoreError as problem:  # it took longer than a call may: that is a finding too
            one.failed[name] = str(problem)
        so_far.append(time.perf_counter() - began)
        if name in one.failed:
            await _answering(one.store)


async def _answering(store: Store) -> None:
    """Waits until the server has done with what nobody waits for any more."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            await store.get([new_id(0)])
            return
        except StoreError:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(1)


async def size_of(url: str) -> int:
    """Bytes of everything on the server, or of the file and its log. MongoDB knows its files only after a checkpoint."""
    if url.startswith("mongodb"):
        from pymongo import AsyncMongoClient

        async with AsyncMongoClient(url) as client:  # type: ignore[var-annotated]
            await client.admin.command("fsync")
    return sum(size for name, size in (await bytes_of(bare(url))).items() if name in ("store", "wal"))


def bare(url: str) -> str:
    """The URL as its driver understands it: the schema is an option of ours."""
    return url.partition("?")[0] if url.startswith("postgres") else url
