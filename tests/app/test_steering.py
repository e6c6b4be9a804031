"""Steering a fleet: settings of queues changed while workers run, breakers opened and closed by hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from mulligan import (
    BadSetting,
    Context,
    Downstream,
    Event,
    FreshFirst,
    Mulligan,
    Queue,
    Rate,
    RetryBudget,
    RetryPolicy,
    StoreUnavailable,
    UnknownQueue,
    Weighted,
)
from mulligan.core.contract import Store
from mulligan.policy.queues import read_changes
from mulligan.request import Options
from mulligan.steering import Steering
from tests.builders import retry
from tests.faults import FaultyStore
from tests.virtual import Stage, play

BEAT_S = 1.5  # a worker looks at the notes once a second
IDLE = {"poll": 3_600, "sweep": 3_600}
LIMIT_S = 20.0  # of a wait for something that takes a second


async def stored(app: Mulligan, *kinds: str) -> list[Event]:
    """The events of these kinds in the store's log."""
    return [event for event in await app.store.read_events(0, 1_000) if event.kind in kinds]


def heard(app: Mulligan, *kinds: str) -> list[Event]:
    """The events of these kinds that this process has published."""
    return [event for event in app.events.recent(1_000) if event.kind in kinds]


class Interrupted(FaultyStore):
    """A store on which something else happens right before the first write of a note."""

    def __init__(self, inner: Store, happens: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(inner)
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    async def put_note(self, *args: Any) -> Any:
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return await self._inner.put_note(*args)


# --- settings of queues ----------------------------------------------------------------------------------------------


async def test_changes_are_merged_field_by_field(app: Mulligan) -> None:
    """Each call changes what it names and leaves the rest; all of it is told as people type it, and can be given again."""
    assert await app.configure("default", claim=Weighted(0.3)) == {"claim": "weighted(0.3)"}
    assert await app.configure("default", rate=Rate(per_minute=100)) == {"claim": "weighted(0.3)", "rate": "100/m"}
    await app.configure("default", budget="20%+10/s over backoff", concurrency=5)
    settings = await app.configure("default", claim="fifo", rate=None)
    assert settings == {"claim": "fifo", "concurrency": 5, "rate": None, "budget": "20%+10/s over backoff"}
    [changed] = await app.configured()
    assert (changed.queue, changed.settings) == ("default", settings)
    await app.reset_queue("default")
    assert await app.configure("default", **settings) == settings


async def test_a_call_without_changes_is_a_look(app: Mulligan) -> None:
    """It answers what is changed, writes nothing and tells nothing."""
    assert await app.configure("default") == {}
    assert await app.store.notes("") == []
    await app.configure("default", concurrency=3)
    notes = await app.store.notes("")
    assert await app.configure("default") == {"concurrency": 3}
    assert await app.store.notes("") == notes
    assert len(heard(app, "QUEUE_CHANGED")) == 1


async def test_reset_takes_everything_back(app: Mulligan) -> None:
    """After it nothing is changed; a second one does nothing; other queues keep what was changed there."""
    app.queues(Queue("other"))
    await app.configure("default", claim="fifo", concurrency=3, by="ann")
    await app.configure("other", concurrency=4)
    await app.reset_queue("default", by="bob")
    assert [(one.queue, one.settings) for one in await app.configured()] == [("other", {"concurrency": 4})]
    await app.reset_queue("default")
    told = [(event.queue, event.detail) for event in await stored(app, "QUEUE_CHANGED")]
    assert told == [
        ("default", {"settings": {"claim": "fifo", "concurrency": 3}, "by": "ann"}),
        ("other", {"settings": {"concurrency": 4}, "by": ""}),
        ("default", {"settings": {}, "by": "bob"}),
    ]


async def test_a_change_is_told_once_and_only_if_it_is_one(app: Mulligan) -> None:
    """The process hears it, the store keeps it, with who did it; the same wish again is no change."""
    for _ in range(3):
        await app.configure("default", claim="separate(5)", by="ann")
    [here] = heard(app, "QUEUE_CHANGED")
    [kept] = await stored(app, "QUEUE_CHANGED")
    assert here.detail == kept.detail == {"settings": {"claim": "separate(5)"}, "by": "ann"}
    assert here.at_us == kept.at_us
    [changed] = await app.configured()
    assert changed.by == "ann"


async def test_of_writers_at_once_each_is_heeded(app: Mulligan) -> None:
    """Six changes made at the same time are all there in the end, and each is told."""
    wishes: list[dict[str, Any]] = [
        {"claim": "fifo"},
        {"concurrency": 3},
        {"max_inflight_retries": 2},
        {"key_concurrency": 4},
        {"rate": "10/s"},
        {"budget": "20%"},
    ]
    await asyncio.gather(*(app.configure("default", **wish) for wish in wishes))
    [changed] = await app.configured()
    assert changed.settings == {name: value for wish in wishes for name, value in wish.items()}
    assert len(await stored(app, "QUEUE_CHANGED")) == 6


async def test_a_writer_that_came_too_late_reads_again(app: Mulligan) -> None:
    """What another has written between the look and the write is kept, and the change is added to it."""
    steering = Steering(Interrupted(app.store, lambda: app.configure("default", concurrency=3)), app.events)
    assert await steering.configure("default", {"claim": "fifo"}, ["default"]) == {"claim": "fifo", "concurrency": 3}
    assert len(await stored(app, "QUEUE_CHANGED")) == 2


async def test_of_two_equal_changes_at_once_one_is_told(app: Mulligan) -> None:
    """Whoever comes second finds it done, although both have read that it was not."""
    steering = Steering(Interrupted(app.store, lambda: app.configure("default", claim="fifo")), app.events)
    assert await steering.configure("default", {"claim": "fifo"}, ["default"]) == {"claim": "fifo"}
    assert len(await stored(app, "QUEUE_CHANGED")) == 1


async def test_a_change_that_never_gets_through_says_so(app: Mulligan) -> None:
    """Others write all the time: the call gives up with an error that invites to repeat it, and has changed nothing."""

    class Contested(FaultyStore):
        async def put_note(self, *args: Any) -> None: ...

    with pytest.raises(StoreUnavailable, match="nothing was changed, try again"):
        await Steering(Contested(app.store), app.events).configure("default", {"claim": "fifo"}, ["default"])
    assert await app.configured() == []
    assert heard(app, "QUEUE_CHANGED") == []


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"claim": "nope"}, "claim must be one of"),
        ({"claim": None}, "claim must be"),
        ({"claim": "weighted(1)"}, "retry_share"),
        ({"concurrency": 0}, "concurrency must be a whole number from 1"),
        ({"concurrency": True}, "concurrency must be"),
        ({"concurrency": "5"}, "concurrency must be"),
        ({"max_inflight_retries": -1}, "max_inflight_retries"),
        ({"key_concurrency": None}, "key_concurrency"),
        ({"rate": "fast"}, "a rate is written as"),
        ({"rate": 5}, "rate must be a Rate"),
        ({"rate": RetryBudget(per_s=1)}, "rate must be a Rate"),
        ({"budget": "20"}, "a budget is written as"),
        ({"budget": Rate(per_s=1)}, "budget must be a RetryBudget"),
        ({"hold_slot_up_to": 3}, "hold_slot_up_to cannot be changed while workers run; known: claim, concurrency"),
        ({"concurrency": 5, "colour": "red"}, "colour cannot be changed"),
    ],
    ids=str,
)
async def test_a_bad_value_is_refused_with_nothing_written(app: Mulligan, changes: dict[str, Any], words: str) -> None:
    """The error names the setting; the note, the events and what was changed before are as they were."""
    await app.configure("default", claim="fifo")
    before = await app.store.notes("")
    with pytest.raises(BadSetting, match=words):
        await app.configure("default", **changes)
    assert await app.store.notes("") == before
    assert len(await stored(app, "QUEUE_CHANGED")) == 1


async def test_only_a_known_queue_can_be_configured(app: Mulligan) -> None:
    """A queue of a task, a setting, stored jobs or an earlier change is known; a misspelt one is refused, and nothing is written."""
    app.declare("one", queue="of-task")
    app.queues(Queue("of-setting"))
    await app.enqueue("one", queue="of-job")
    for name in ("default", "of-task", "of-setting", "of-job"):
        assert await app.configure(name, concurrency=3) == {"concurrency": 3}
    async with AnotherApp(app) as other:  # it knows of them only what the store tells
        await other.reset_queue("of-task")
        for call in (other.configure, other.reset_queue):
            with pytest.raises(UnknownQueue, match="no queue is named 'of-tusk'; known: default, of-job, of-setting, of-task"):
                await call("of-tusk")
        with pytest.raises(BadSetting, match="valid name"):
            await other.configure("bad name!", concurrency=3)
    assert "queue:of-tusk" not in [note.key for note in await app.store.notes("")]


class AnotherApp:
    """An app without tasks on the store of another app."""

    def __init__(self, app: Mulligan) -> None:
        self._app = Mulligan("memory://")
        self._app.store = app.store
        self._app._steering = Steering(app.store, self._app.events)

    async def __aenter__(self) -> Mulligan:
        return self._app

    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("body", ["", "{", "[]", '{"concurrency": 0}', '{"rate": {"per_s": 1, "per_minute": 1}}', "\ud7ff", "null"])
async def test_a_note_that_cannot_be_read_keeps_nobody_from_writing(app: Mulligan, body: str) -> None:
    """It counts as no change, is left out of the list, and is written over by the next wish, also by a reset."""
    await app.store.put_note("queue:default", body, 0)
    assert await app.configured() == []
    await app.reset_queue("default", by="ann")
    [note] = await app.store.notes("")
    assert read_changes("default", note.body)[0] == {}
    assert await app.configure("default", concurrency=3) == {"concurrency": 3}
    assert [one.settings for one in await app.configured()] == [{"concurrency": 3}]


async def test_names_of_operators_are_made_storable(app: Mulligan) -> None:
    """A name or reason that no store could keep must not keep an operator from acting."""
    odd = "a\ud800\0" + "x" * 100_000
    await app.configure("default", claim="fifo", by=odd)
    opened = await app.open_breaker("bank", reason=odd, by=odd)
    [changed], [breaker] = await app.configured(), await app.breakers()
    assert changed.by.startswith("a?\N{REPLACEMENT CHARACTER}x")
    assert breaker == opened
    assert len(changed.by) < 300 and len(breaker.by) < 300 and len(breaker.reason) < 5_000


async def test_claims_by_hand_follow_at_once(app: Mulligan) -> None:
    """The next claim after a change goes by it, and after a reset by the code again."""
    app.declare("work")
    app.queues(Queue("default", concurrency=4))
    await app.enqueue_many([app.build(app.registry.need("work"), (), {}, Options()) for _ in range(9)])
    assert len(await app.claim(limit=2)) == 2
    await app.configure("default", concurrency=3)
    assert len(await app.claim(limit=9)) == 1
    await app.reset_queue("default")
    assert len(await app.claim(limit=9)) == 1
    await app.configure("default", concurrency=None)
    assert len(await app.claim(limit=9)) == 5


def test_a_worker_follows_a_changed_cap_within_a_beat(backend: str, tmp_path: Path) -> None:
    """A cap that is lowered, lifted and taken back while the worker runs holds for all claims from the next beat on."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("q", concurrency=4))
        running = 0

        @app.task(queue="q")
        async def work() -> None:
            nonlocal running
            running += 1
            await asyncio.sleep(10)
            running -= 1

        async def at_once() -> int:
            """How many of nine jobs run side by side."""
            await app.enqueue_many([work.job() for _ in range(9)])
            await asyncio.sleep(1)
            seen = running
            await worker.drain()
            return seen

        async with stage.worker(**IDLE) as worker:
            assert await at_once() == 4
            await app.configure("q", concurrency=2)
            await asyncio.sleep(BEAT_S)
            assert await at_once() == 2
            await app.configure("q", concurrency=None)
            await asyncio.sleep(BEAT_S)
            assert await at_once() == 9
            await app.reset_queue("q")
            await asyncio.sleep(BEAT_S)
            assert await at_once() == 4

    play(backend, tmp_path, scene)


def test_a_worker_that_starts_keeps_what_was_changed_before(backend: str, tmp_path: Path) -> None:
    """The very first claim goes by the changed settings: a restart must not break a cap."""

    async def scene(stage: Stage) -> None:
        @stage.app.task(queue="q")
        async def work() -> None:
            await asyncio.sleep(10)

        await stage.app.enqueue_many([work.job() for _ in range(9)])
        await stage.app.configure("q", concurrency=2)
        async with stage.worker(**IDLE) as worker:
            await asyncio.sleep(0.1)
            assert (await stage.app.status())["q"].running == 2
            await worker.drain()
        assert max([job.fence async for job in stage.app.jobs()]) == 1

    play(backend, tmp_path, scene)


def test_a_lifted_cap_wakes_who_waits_for_it(backend: str, tmp_path: Path) -> None:
    """Jobs that a cap held back start within a beat of its change, though nothing ends and nobody polls."""

    async def scene(stage: Stage) -> None:
        starts: list[float] = []
        stage.app.queues(Queue("q", concurrency=1))

        @stage.app.task(queue="q")
        async def work() -> None:
            starts.append(stage.elapsed_s)
            await asyncio.sleep(1_000)

        await stage.app.enqueue_many([work.job() for _ in range(3)])
        async with stage.worker(**IDLE, grace=0):
            await asyncio.sleep(100)
            await stage.app.configure("q", concurrency=3)
            await asyncio.sleep(BEAT_S)
        assert len(starts) == 3
        assert all(100 <= at_s <= 100 + BEAT_S for at_s in starts[1:])

    play(backend, tmp_path, scene)


def test_a_worker_follows_a_changed_strategy_within_a_beat(backend: str, tmp_path: Path) -> None:
    """With one slot and both lanes full, fresh jobs come first until the queue is told otherwise, then retries do."""

    async def scene(stage: Stage) -> None:
        lanes: list[str] = []
        stage.app.queues(Queue("q", claim=FreshFirst()))

        @stage.app.task(queue="q")
        async def work(ctx: Context) -> None:
            lanes.append(ctx.job.lane)
            await asyncio.sleep(1)

        await stage.app.enqueue_many([work.job() for _ in range(30)])
        failed = await stage.app.claim(queue="q", limit=30)
        await stage.app.store.settle([retry(lease.job) for lease in failed])
        await stage.app.enqueue_many([work.job() for _ in range(30)])
        async with stage.worker(concurrency=1, **IDLE):
            await asyncio.sleep(10.5)
            assert set(lanes) == {"fresh"}
            await stage.app.configure("q", claim="retry_first")
            await asyncio.sleep(3)
            lanes.clear()
            await asyncio.sleep(10)
            assert set(lanes) == {"retry"}
            assert len(lanes) == 10

    play(backend, tmp_path, scene)


def test_a_worker_keeps_its_settings_when_a_note_cannot_be_read(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so, the queue is served as before, and the next good note counts."""

    async def scene(stage: Stage) -> None:
        app = stage.app

        @app.task(queue="q")
        async def work() -> None:
            await asyncio.sleep(10)

        async with stage.worker(**IDLE) as worker:
            await app.configure("q", concurrency=2)
            await asyncio.sleep(BEAT_S)
            [note] = await app.store.notes("queue:q")
            await app.store.put_note("queue:q", "{broken", note.version)
            await asyncio.sleep(BEAT_S)
            await app.enqueue_many([work.job() for _ in range(6)])
            await asyncio.sleep(1)
            assert (await app.status())["q"].running == 2
            await app.configure("q", concurrency=5)
            await asyncio.sleep(BEAT_S)
            assert (await app.status())["q"].running == 5
            await worker.drain()

    with caplog.at_level(logging.ERROR, logger="mulligan.worker"):
        play(backend, tmp_path, scene)
    assert [record.levelname for record in caplog.records if "stored settings cannot be read" in record.getMessage()] == ["ERROR"]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for something that must come about soon."""
    async with asyncio.timeout(LIMIT_S):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_a_worker_in_real_time_follows(app: Mulligan) -> None:
    """The same with a real clock and a real keeper thread: the cap is lifted while two of five jobs run, and the others start."""
    app.queues(Queue("q", concurrency=2))
    release = asyncio.Event()

    @app.task(queue="q")
    async def work() -> None:
        await release.wait()

    async def runs(count: int) -> bool:
        return (await app.status())["q"].running == count

    await app.enqueue_many([work.job() for _ in range(5)])
    async with app.worker() as worker:
        await until(lambda: runs(2))
        await app.configure("q", concurrency=5)
        await until(lambda: runs(5))
        release.set()
        await worker.drain()


# --- breakers --------------------------------------------------------------------------------------------------------


async def test_a_breaker_is_opened_and_closed_by_hand(app: Mulligan) -> None:
    """Its state, since when, by whom and why can be read; every turn is told once, and stored."""
    assert await app.breakers() == []
    opened = await app.open_breaker("bank", reason="they asked", by="ann")
    assert (opened.name, opened.state, opened.manual, opened.by, opened.reason) == ("bank", "open", True, "ann", "they asked")
    assert opened.since is not None and opened.until is None and opened.held_until is None
    assert await app.breakers() == [opened]
    assert await app.open_breaker("bank", reason="they asked", by="ann") == opened
    closed = await app.close_breaker("bank", by="bob")
    assert (closed.state, closed.manual, closed.by) == ("closed", False, "bob")
    await app.close_breaker("bank", by="bob")
    for events in (heard(app, "BREAKER_OPENED", "BREAKER_CLOSED"), await stored(app, "BREAKER_OPENED", "BREAKER_CLOSED")):
        assert [(event.kind, event.detail["downstream"], event.detail["by"], event.detail["why"]) for event in events] == [
            ("BREAKER_OPENED", "bank", "ann", "they asked"),
            ("BREAKER_CLOSED", "bank", "bob", "an operator closed it"),
        ]


async def test_breakers_are_listed_by_name_and_bad_names_refused(app: Mulligan) -> None:
    """What cannot be the name of a downstream is refused; a note that cannot be read is left out, and written over."""
    for name in ("b", "a", "c"):
        await app.open_breaker(name)
    await app.store.put_note("breaker:broken", "{", 0)
    assert [breaker.name for breaker in await app.breakers()] == ["a", "b", "c"]
    with pytest.raises(BadSetting, match="valid name"):
        await app.open_breaker("no such name!")
    await app.open_breaker("broken")
    assert [breaker.name for breaker in await app.breakers()] == ["a", "b", "broken", "c"]


async def test_operators_at_once_do_not_lose_each_other(app: Mulligan) -> None:
    """Ten operators open a breaker, each with a reason of its own: each turn is told, and the last one's word stands."""
    await asyncio.gather(*(app.open_breaker("bank", by=f"operator {number}") for number in range(10)))
    told = await stored(app, "BREAKER_OPENED")
    assert sorted(event.detail["by"] for event in told) == [f"operator {number}" for number in range(10)]
    [breaker] = await app.breakers()
    assert breaker.state == "open"


def test_an_open_breaker_holds_jobs_without_spending_attempts(backend: str, tmp_path: Path) -> None:
    """What depends on it waits, in all queues; what depends on something else, or on nothing, runs; closed, all of it runs at once."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        starts: dict[str, list[float]] = {"bank": [], "shop": [], "nothing": []}

        def task(name: str, **settings: Any) -> Any:
            async def work() -> None:
                starts[name].append(stage.elapsed_s)

            return app.task(name=name, **settings)(work)

        bank, shop, nothing = task("bank", depends_on="bank"), task("shop", depends_on="shop"), task("nothing")
        await app.open_breaker("bank", reason="maintenance", by="ann")
        held = [await bank.enqueue(), await bank.options(queue="other", fair_key="tenant").enqueue()]
        await shop.enqueue()
        await nothing.enqueue()
        async with stage.worker(queues=["default", "other"], **IDLE) as worker:
            await asyncio.sleep(100)
            assert [(job.status, job.attempts, job.fence) for job in [await handle.job() for handle in held]] == [("pending", 0, 0)] * 2
            assert await app.claim() == []
            await app.close_breaker("bank", by="ann")
            await asyncio.sleep(BEAT_S)
            await worker.drain()
        assert [len(starts[name]) for name in ("bank", "shop", "nothing")] == [2, 1, 1]
        assert max(starts["shop"] + starts["nothing"]) < 1
        assert all(100 <= at_s <= 100 + BEAT_S for at_s in starts["bank"])
        assert [(await handle.job()).attempts for handle in held] == [1, 1]

    play(backend, tmp_path, scene)


def test_a_breaker_opened_beside_a_running_worker_stops_the_next_jobs(backend: str, tmp_path: Path) -> None:
    """What runs goes on; from the next beat on nothing more is started; a job that was claimed already goes back uncounted."""

    async def scene(stage: Stage) -> None:
        starts: list[float] = []

        @stage.app.task(depends_on="bank")
        async def work() -> None:
            starts.append(stage.elapsed_s)
            await asyncio.sleep(1)

        await stage.app.enqueue_many([work.job() for _ in range(30)])
        async with stage.worker(concurrency=1, **IDLE):
            await asyncio.sleep(9.5)
            await stage.app.open_breaker("bank")
            await asyncio.sleep(BEAT_S)
            begun = len(starts)
            assert 9 < begun <= 12
            await asyncio.sleep(100)
            assert len(starts) == begun
            jobs = [job async for job in stage.app.jobs(status="pending")]
            assert len(jobs) == 30 - begun
            assert {job.attempts for job in jobs} == {0}
            await stage.app.close_breaker("bank")
            await asyncio.sleep(60)
        assert len(starts) == 30

    play(backend, tmp_path, scene)


class TooManyRequests(Exception):
    """What an HTTP client raises for a 429."""

    headers = {"Retry-After": "60"}

    @property
    def response(self) -> TooManyRequests:
        return self


def test_a_held_downstream_is_listed_with_its_time(backend: str, tmp_path: Path) -> None:
    """One Retry-After holds everything that depends on it; the list says until when, and closing by hand ends it."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.downstreams(Downstream("bank", breaker=None))
        runs: list[float] = []

        @app.task(depends_on="bank", retry=RetryPolicy(max_retries=5))
        async def work(busy: bool) -> None:
            runs.append(stage.elapsed_s)
            if busy:
                raise TooManyRequests

        await work.enqueue(True)
        async with stage.worker(**IDLE):
            await asyncio.sleep(5)
            [breaker] = await app.breakers()
            assert (breaker.state, breaker.manual) == ("closed", False)
            assert breaker.held_until is not None
            assert 50 < breaker.held_until.timestamp() - stage.clock.now_us() / 1e6 <= 60
            await work.enqueue(False)
            await asyncio.sleep(5)
            assert len(runs) == 1
            [event] = await stored(app, "DOWNSTREAM_HELD")
            assert event.detail["downstream"] == "bank"
            assert (await app.close_breaker("bank")).held_until is None
            await asyncio.sleep(BEAT_S)
            assert len(runs) == 2

    play(backend, tmp_path, scene)
