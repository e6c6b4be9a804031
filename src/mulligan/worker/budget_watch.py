"""The budget watch: tells when a retry budget is spent, and when half of it is there again. Each worker tells what its claims have met."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mulligan.core.events import Event, EventKind
from mulligan.core.limits import TOKEN, Bucket
from mulligan.policy.queues import EACH

SPENT_MAX = 1_000  # budgets known to be spent; beyond it further ones are not told, which only tenants' budgets can reach
_PREFIX = "budget:"


class BudgetWatch:
    """One per worker. A budget in use runs empty with every token that comes in, so one that is spent counts as such until half is back."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._spent: set[str] = set()

    def look(self, levels: Mapping[str, int], buckets: Iterable[Bucket], now_us: int) -> list[Event]:
        """The changes that the levels of a claim show. `buckets` are all those that claims keep."""
        keys = [key for key in levels if key.startswith(_PREFIX)]
        if not keys:
            return []
        known = {bucket.key: bucket for bucket in buckets}
        events = []
        for key in keys:
            bucket = known.get(key) or known.get(key.partition(f"{EACH}/")[0] + EACH)
            if bucket is None:
                continue
            if key in self._spent:
                if levels[key] >= max(TOKEN, bucket.burst_u // 2):
                    self._spent.discard(key)
                    events.append(self._event("BUDGET_RECOVERED", key, levels[key], bucket, now_us))
            elif levels[key] < TOKEN and len(self._spent) < SPENT_MAX:
                self._spent.add(key)
                events.append(self._event("BUDGET_SPENT", key, levels[key], bucket, now_us))
        return events

    def _event(self, kind: EventKind, key: str, level_u: int, bucket: Bucket, now_us: int) -> Event:
        owner, _, name = key.removeprefix(_PREFIX).partition(":")
        name = name.replace(f"{EACH}/", " ", 1)
        detail = {
            "owner": owner,
            "name": name,
            "left": max(0, level_u) / TOKEN,
            "most": bucket.burst_u / TOKEN,
            "per_s": bucket.rate_u / TOKEN,
        }
        return Event(kind=kind, at_us=now_us, worker=self._worker, queue=name if owner == "queue" else "", detail=detail)
