"""Why a due job is not started although there is room: in sentences, and from real workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from mulligan import Constant, Mulligan, Queue, Rate, RetryBudget, RetryPolicy
from mulligan.cli.holding import holding
from mulligan.core.clock import SECOND_US, us_to_datetime
from mulligan.core.groups import group_of
from mulligan.core.job import Job
from mulligan.fleet import LimitStatus
from mulligan.inline import inline_job
from mulligan.steering import BreakerStatus
from tests.builders import new_job
from tests.cli.conftest import Run, Shop

NOW_US = 1_700_000_000 * SECOND_US  # 2023-11-14 22:13:20
JOB: Job = inline_job(new_job(group=group_of(None, "bank", None, None)), NOW_US)


def limit(**fields: Any) -> LimitStatus:
    """A limit of which nothing is left."""
    given: dict[str, Any] = {"kind": "slots", "owner": "queue", "name": "q", "queue": "q", "lane": None, "most": 5, "left": 0}
    return LimitStatus(**(given | fields))


def breaker(**fields: Any) -> BreakerStatus:
    """The breaker of the bank."""
    given: dict[str, Any] = {"name": "bank", "state": "closed", "since": None, "until": None, "held_until": None, "manual": False, "by": ""}
    return BreakerStatus(**(given | {"reason": ""} | fields))


@pytest.mark.parametrize(
    ("spent", "sentence"),
    [
        (limit(), "5 jobs of queue q may run at once, and so many do"),
        (limit(lane="retry", most=2), "2 retries of queue q may run at once, and so many do"),
        (limit(owner="key", name="order:7", most=1), "1 with the concurrency key order:7 may run at once"),
        (limit(kind="budget", per_s=0.5), "The retry budget of queue q is spent, and one token comes in every 2 s"),
        (limit(kind="budget", owner="downstream", name="bank", per_s=0.0), "only fresh starts bring tokens in"),
        (
            limit(kind="rate", owner="task", name="pay", per_s=10.0),
            "The rate limit of task pay is spent, and one token comes in every 100 ms",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_spent_limit_has_a_sentence(spent: LimitStatus, sentence: str) -> None:
    """It names whose limit it is, how much there is of it, and when the job goes on."""
    [line] = holding(JOB, [spent], [])
    assert sentence in line
    assert "it starts when" in line


def test_what_is_left_is_in_nobodys_way() -> None:
    """One slot or one token is enough, and a closed breaker or that of another downstream holds nothing."""
    assert holding(JOB, [limit(left=1), limit(kind="rate", left=1.0, per_s=1.0)], [breaker(), breaker(name="other", state="open")]) == []


def test_breakers_are_told_with_their_reasons() -> None:
    """Open until a time, half open, closing, opened by hand, held by a Retry-After."""
    later = us_to_datetime(NOW_US) + timedelta(seconds=30)
    [line] = holding(JOB, [], [breaker(state="open", until=later, reason="12 of 20 calls failed")])
    assert "bank, whose breaker is open until 22:13:50 (in 30 s) (12 of 20 calls failed). No attempts are spent." in line
    [line] = holding(JOB, [], [breaker(state="open", manual=True, by="anna", reason="maintenance")], hint=" --store x")
    assert "opened by hand by anna" in line
    assert line.endswith("mulligan breakers close bank --store x")
    [line] = holding(JOB, [], [breaker(state="half_open")])
    assert "one call at a time" in line
    [line] = holding(JOB, [], [breaker(held_until=later)])
    assert "asked to be left alone until 22:13:50" in line
    assert len(holding(JOB, [limit()], [breaker(state="open", held_until=later)])) == 3


def test_why_and_status_tell_what_holds_a_job_back(run: Run, shop: Shop) -> None:
    """With a worker alive that keeps the limits: a full queue, a spent budget, an open breaker; in words and as data."""

    async def scene(app: Mulligan) -> dict[str, Any]:
        app.queues(
            Queue("full", concurrency=1),
            Queue("spent", budget=RetryBudget(per_minute=1, burst=1), retry=RetryPolicy(max_retries=9, backoff=Constant(0.001))),
            Queue("slow", rate=Rate(per_hour=1)),
        )
        go_on, failed = asyncio.Event(), asyncio.Event()
        runs = []

        @app.task(queue="full")
        async def wait() -> None:
            await go_on.wait()

        @app.task(queue="spent")
        async def fail() -> None:
            runs.append(1)
            if len(runs) == 2:
                failed.set()
            raise ConnectionError("down")

        @app.task(queue="default", depends_on="bank")
        async def pay() -> None: ...

        await app.open_breaker("bank", reason="maintenance", by="anna")
        async with app.worker(lease=0.3):
            await wait.enqueue()
            jobs = {"full": await wait.enqueue(), "spent": await fail.enqueue(), "default": await pay.enqueue()}
            await asyncio.wait_for(failed.wait(), 20)
            seen: dict[str, Any] = {}
            for name, handle in jobs.items():
                for _ in range(200):  # until the worker has reported, and the jobs have come to where they wait
                    seen[name] = (await asyncio.to_thread(run, "why", handle.id, "--json")).json
                    if seen[name]["situation"] == "held back":
                        break
                    await asyncio.sleep(0.05)
            for _ in range(200):  # until it has counted them, and told so
                seen["status"] = (await asyncio.to_thread(run, "status", "--json")).json
                [spent] = [queue for queue in seen["status"]["queues"] if queue["region"] == "spent"]
                if spent["recent"] and spent["recent"]["by_attempt"].get("2"):
                    break
                await asyncio.sleep(0.05)
            seen["text"] = (await asyncio.to_thread(run, "status")).out
            go_on.set()
            return seen

    seen = shop.do(scene)
    assert {name: seen[name]["situation"] for name in ("full", "spent", "default")} == dict.fromkeys(
        ("full", "spent", "default"), "held back"
    )
    assert "1 jobs of queue full may run at once" in " ".join(seen["full"]["facts"]["held_back_by"])
    assert "retry budget of queue spent is spent" in " ".join(seen["spent"]["sentences"])
    assert "mulligan breakers close bank" in " ".join(seen["default"]["sentences"])
    assert seen["default"]["facts"]["breaker"]["state"] == "open"
    assert seen["default"]["job"]["attempts"] == 0, "no attempt is spent"
    assert {one["name"] for one in seen["status"]["limits"]} >= {"full", "spent", "slow"}
    assert seen["status"]["breakers"][0]["reason"] == "maintenance"
    [spent] = [queue for queue in seen["status"]["queues"] if queue["region"] == "spent"]
    assert spent["recent"]["retry_starts"] == 1
    assert spent["claim"] == "weighted(0.2)"
    for piece in ("last 10 minutes", "retry budget, queue spent", "jobs at once, queue full", "maintenance", "weighted(0.2)"):
        assert piece in seen["text"]
