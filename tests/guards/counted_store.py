"""A store that counts: every call that passes the contract, and how many jobs each claim, settle and insert carried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mulligan.core.change import Change, Verdict
from mulligan.core.contract import Ask, Claimed, Near, Store


class Calls:
    """What was counted since the last `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begins anew."""
        self.by_name: Counter[str] = Counter()
        self.asked: list[int] = []  # how many jobs each claim wanted at most
        self.claimed: list[int] = []  # how many it got
        self.settled: list[int] = []
        self.inserted: list[int] = []

    @property
    def full_claims(self) -> list[int]:
        """The claims that got something."""
        return [jobs for jobs in self.claimed if jobs]


class CountedNear:
    """The near side of a counted store."""

    def __init__(self, inner: Near, calls: Calls) -> None:
        self._inner = inner
        self._calls = calls

    async def claim(self, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        self._calls.by_name["claim"] += 1
        claimed = await self._inner.claim(claim_id, owner, asks, total, lease_us)
        self._calls.asked.append(total)
        self._calls.claimed.append(len(claimed.jobs))
        return claimed

    async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
        self._calls.by_name["settle"] += 1
        self._calls.settled.append(len(changes))
        return await self._inner.settle(changes)

    async def close(self) -> None:
        await self._inner.close()


class CountedStore(CountedNear):
    """Passes everything on to the store inside. Its near side, where it has one, is counted as well."""

    _inner: Store

    def __init__(self, inner: Store) -> None:
        self.calls = Calls()
        super().__init__(inner, self.calls)

    async def near(self) -> Near | None:
        near = await self._inner.near()
        return None if near is None else CountedNear(near, self.calls)

    async def insert(self, jobs: Sequence[Any]) -> Any:
        self.calls.by_name["insert"] += 1
        self.calls.inserted.append(len(jobs))
        return await self._inner.insert(jobs)

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._inner, name)
        if name in ("listen", "announce", "url", "width") or name.startswith("_"):
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.by_name[name] += 1
            return await target(*args, **kwargs)

        return call
