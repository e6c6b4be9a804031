"""Faults as a wrapper around a real store: refuse a call, or carry it out and lose the answer."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from mulligan.core.contract import Store
from mulligan.core.errors import StoreUnavailable

When = Literal["before", "after"]


class FaultyStore:
    """Passes everything on to the store inside; fails the next calls it was told to fail.

    "before": the call never reaches the store. "after": it is carried out, but its answer is lost.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._plan: dict[str, list[tuple[When, Exception]]] = {}
        self.calls: Counter[str] = Counter()

    def fail(self, call: str, *, times: int = 1, when: When = "before", error: Exception | None = None) -> None:
        """Plans failures of the next calls of this name."""
        fault = error or StoreUnavailable("injected: the store is away")
        self._plan.setdefault(call, []).extend([(when, fault)] * times)

    async def near(self) -> None:
        """No way past the faults."""

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._inner, name)
        if name in ("listen", "announce", "url", "width") or name.startswith("_"):
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            plan = self._plan.get(name)
            if not plan:
                return await target(*args, **kwargs)
            when, fault = plan.pop(0)
            if when == "after":
                await target(*args, **kwargs)
            raise fault

        return call
