"""The parts of the simulator: arrivals, services and their faults, the recorder, the figures, the charts."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from mulligan import Context, Mulligan, RetryPolicy
from mulligan.core.job import Job
from mulligan.sim.arrivals import at_once, bursts, feed, poisson, steady
from mulligan.sim.chart import LIGHT, Chart
from mulligan.sim.durations import between, exponential, fixed
from mulligan.sim.figures import (
    by_time,
    depth,
    last_end_s,
    median_wait_s,
    most_within,
    peak_to_mean,
    per_bin,
    quantile,
    selected,
    times_to_done,
)
from mulligan.sim.play import play
from mulligan.sim.recorder import Recorder, Run
from mulligan.sim.service import Breakdown, Fault, Flapping, Outage, Poison, Service, ServiceFailed
from mulligan.sim.virtual import LoopClock, run_virtual
from mulligan.stores.listener import LocalListeners

# --- arrivals and durations ------------------------------------------------------------------------------------------


def test_steady_arrivals_are_even() -> None:
    """So many a second, one like the other, from the start to before the end."""
    assert list(steady(2, 10, 12)) == [10.0, 10.5, 11.0, 11.5]


def test_poisson_arrivals_have_their_rate_and_repeat_by_seed() -> None:
    """On average as many as asked for, rising, inside their bounds, and the same for the same seed."""
    times = list(poisson(5, 100, 1_100, random.Random(1)))
    assert len(times) == pytest.approx(5_000, rel=0.05)
    assert all(100 < earlier < later < 1_100 for earlier, later in pairwise(times))
    assert times == list(poisson(5, 100, 1_100, random.Random(1)))


def test_bursts_come_together() -> None:
    """Each batch is at one moment."""
    times = list(bursts(10, 0.1, 0, 1_000, random.Random(1)))
    assert len(times) == 10 * len(set(times))
    assert list(at_once(3, 7)) == [7, 7, 7]


def test_durations_have_their_mean() -> None:
    """Fixed ones are fixed, the others lie where they should."""
    rng = random.Random(1)
    assert fixed(2)(rng) == 2
    assert all(1 <= between(1, 3)(rng) <= 3 for _ in range(100))
    assert sum(exponential(4)(rng) for _ in range(10_000)) / 10_000 == pytest.approx(4, rel=0.05)


def test_the_feeder_enqueues_at_the_times_and_together_what_comes_together() -> None:
    """One batch for each moment, at that moment."""
    batches: list[tuple[float, list[Any]]] = []

    class App:
        async def enqueue_many(self, jobs: Any) -> list[Any]:
            batches.append((asyncio.get_running_loop().time(), list(jobs)))
            return []

    async def main(clock: LoopClock) -> None:
        await feed(App(), [1.0, 1.0, 2.5], lambda number: number)  # type: ignore[arg-type,return-value]

    run_virtual(main)
    assert batches == [(pytest.approx(1.0), [0, 1]), (pytest.approx(2.5), [2])]


# --- services and faults ---------------------------------------------------------------------------------------------


def outcome(fault: Fault | None, at_s: float, *, attempts: int = 1, takes_s: float = 2.0) -> tuple[float, bool, float | None]:
    """When a call that begins at a time ends, whether it was well, and the Retry-After it carries."""

    async def main(clock: LoopClock) -> tuple[float, bool, float | None]:
        async with Mulligan("memory://", clock=clock, rng=random.Random(1)) as app:
            job: Job = app.inline_job(app.task(nothing).job())
            service = Service(fixed(takes_s), random.Random(1), [] if fault is None else [fault])
            loop = asyncio.get_running_loop()
            await asyncio.sleep(at_s)
            try:
                await service.call(_with_attempts(job, attempts))
            except ServiceFailed as failed:
                return loop.time(), False, failed.retry_after
            return loop.time(), True, None

    return run_virtual(main)


async def nothing() -> None:
    """A handler that is never run."""


def _with_attempts(job: Job, attempts: int) -> Job:
    return msgspec.structs.replace(job, attempts=attempts)


ALWAYS = Poison(lambda job: True)


@pytest.mark.parametrize(
    ("fault", "at_s", "end_s", "ok"),
    [
        (None, 5, 7, True),
        (Outage(start_s=5, end_s=9), 4.9, 6.9, True),
        (Outage(start_s=5, end_s=9), 5, 7, False),
        (Outage(start_s=5, end_s=9, takes=fixed(0.5)), 6, 6.5, False),
        (Outage(start_s=5, end_s=9), 9, 11, True),
        (Outage(start_s=5, end_s=9, share=0.0), 6, 8, True),
        (Flapping(start_s=10, end_s=50, down_s=5, up_s=10), 9, 11, True),
        (Flapping(start_s=10, end_s=50, down_s=5, up_s=10), 14, 16, False),
        (Flapping(start_s=10, end_s=50, down_s=5, up_s=10), 15, 17, True),
        (Flapping(start_s=10, end_s=50, down_s=5, up_s=10, takes=fixed(1)), 25, 26, False),
        (Flapping(start_s=10, end_s=50, down_s=5, up_s=10), 55, 57, True),
        (Breakdown(6), 5, 6, False),
        (Breakdown(6), 6, 6, False),
        (Breakdown(6), 6.1, 8.1, True),
        (Breakdown(6), 4, 6, True),
        (ALWAYS, 5, 7, False),
        (Poison(lambda job: False), 5, 7, True),
        (Poison(lambda job: True, 1), 5, 7, False),
        (Poison(lambda job: True, 0), 5, 7, True),
        (Poison(lambda job: True, None, fixed(0.1)), 5, 5.1, False),
    ],
)
def test_a_fault_strikes_the_calls_it_is_for(fault: Fault | None, at_s: float, end_s: float, ok: bool) -> None:
    """A call ends when it should, well or not."""
    assert outcome(fault, at_s)[:2] == (pytest.approx(end_s), ok)


def test_an_outage_may_ask_to_be_left_alone() -> None:
    """The error carries what the service asks for."""
    assert outcome(Outage(start_s=0, end_s=9, retry_after_s=60), 1)[2] == 60
    assert outcome(Outage(start_s=0, end_s=9), 1)[2] is None


def test_the_first_of_several_faults_decides() -> None:
    """A call that would fail at its end fails when the service breaks before."""

    async def main(clock: LoopClock) -> float:
        async with Mulligan("memory://", clock=clock, rng=random.Random(1)) as app:
            service = Service(fixed(5), random.Random(1), [ALWAYS, Breakdown(3)])
            with pytest.raises(ServiceFailed):
                await service.call(app.inline_job(app.task(nothing).job()))
            assert service.calls == 1
            return asyncio.get_running_loop().time()

    assert run_virtual(main) == pytest.approx(3)


# --- the recorder ----------------------------------------------------------------------------------------------------


def test_the_recorder_tells_lanes_tenants_and_waits() -> None:
    """One slot, two jobs of a second each: the first fails once; every run is there with its times."""

    async def main(clock: LoopClock) -> Recorder:
        policy = RetryPolicy(jitter="none", max_retries=1)
        async with Mulligan("memory://", clock=clock, rng=random.Random(1), retry=policy) as app:
            recorder = Recorder(app, clock)
            service = Service(fixed(1), random.Random(1), [Poison(lambda job: job.fair_key == "a", 1)])

            @app.task(depends_on="pay")
            async def call(ctx: Context) -> None:
                await service.call(ctx.job)

            def job(number: int) -> Any:
                return call.options(fair_key="ab"[number]).job()

            await play(app, recorder, feed(app, [2.0, 2.0], job), concurrency=1)
            return recorder

    recorder = run_virtual(main)
    assert (recorder.enqueued, recorder.failed) == (2, 0)
    seen = [(run.job, run.tenant, run.downstream, run.lane, run.attempt, run.ok) for run in recorder.runs]
    assert seen == [(0, "a", "pay", "fresh", 1, False), (1, "b", "pay", "fresh", 1, True), (0, "a", "pay", "retry", 2, True)]
    times = [(run.due_s, run.start_s, run.end_s) for run in recorder.runs]
    assert times == [pytest.approx(expected, abs=0.01) for expected in [(2, 2, 3), (2, 3, 4), (4, 4, 5)]]
    assert [run.wait_s for run in recorder.runs] == pytest.approx([0, 1, 0], abs=0.01)


def test_jobs_that_are_given_up_or_cancelled_come_to_rest() -> None:
    """A simulation ends when the last job was given up, too."""

    async def main(clock: LoopClock) -> Recorder:
        async with Mulligan("memory://", clock=clock, rng=random.Random(1), retry=RetryPolicy(max_retries=1)) as app:
            recorder = Recorder(app, clock)
            service = Service(fixed(1), random.Random(1), [ALWAYS])

            @app.task
            async def call(ctx: Context) -> None:
                await service.call(ctx.job)

            await play(app, recorder, feed(app, at_once(3, 0), lambda _: call.job()), concurrency=2, workers=2)
            return recorder

    recorder = run_virtual(main)
    assert (recorder.enqueued, recorder.failed, len(recorder.runs)) == (3, 3, 6)


def test_sleepers_are_woken_in_the_order_in_which_they_came() -> None:
    """A hint reaches several workers in the same order in every run: which of them claims first is no matter of chance."""
    ears = LocalListeners()
    made = [ears.listen() for _ in range(50)]
    made[7].close()
    assert ears._all() == made[:7] + made[8:]


# --- figures ---------------------------------------------------------------------------------------------------------


def made(job: int, attempt: int, due_s: float, start_s: float, end_s: float, *, ok: bool) -> Run:
    return Run(job, "task", "queue", "", "", "fresh" if attempt == 1 else "retry", attempt, due_s, start_s, end_s, ok)


RUNS = [
    made(0, 1, 0, 0, 5, ok=False),
    made(1, 1, 0, 2, 4, ok=True),
    made(2, 1, 10, 14, 15, ok=False),
    made(0, 2, 20, 21, 30, ok=True),
]


def test_bins_hold_what_falls_between_two_times() -> None:
    """The start belongs to a bin, the end to the next."""
    assert per_bin([0, 9.9, 10, 25, 30], 10, 0, 30) == [2, 1, 1]
    assert per_bin([4, 5, 14.9, 15], 10, 5, 15) == [2]


def test_peak_to_mean() -> None:
    """Even is 1; everything in one bin is the number of bins; nothing at all is 0."""
    assert peak_to_mean([3, 3, 3]) == 1
    assert peak_to_mean([0, 9, 0]) == 3
    assert peak_to_mean([0, 0]) == 0


def test_the_fullest_window_may_begin_anywhere() -> None:
    """A window that no bin shows is found; its end does not belong to it."""
    assert most_within([1, 8, 9, 10, 11, 12, 25], 10) == 5
    assert most_within([0, 10, 20], 10) == 1
    assert most_within([], 10) == 0


def test_figures_of_a_record() -> None:
    """Waits, times to done, values by time and the number of waiting retries follow from the runs."""
    assert median_wait_s(RUNS) == 1.5
    assert median_wait_s([]) == 0
    assert [run.job for run in selected(RUNS, lane="fresh", start_s=1, end_s=14)] == [1]
    assert times_to_done(RUNS) == [4, 30]
    assert times_to_done(RUNS, start_s=5) == []
    assert list(by_time(RUNS, len, bin_s=10)) == [(5, 2), (15, 1), (25, 1)]  # by when they fell due
    assert list(depth(RUNS, 10)) == [(0, 0), (10, 1), (20, 1), (30, 0)]
    assert (last_end_s(RUNS), last_end_s([])) == (30, 0)
    assert (quantile([3, 1, 2], 0.5), quantile([1, 2], 1), quantile([], 0.5)) == (2, 2, 0)


# --- charts ----------------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def places(chart: Chart) -> list[list[tuple[float, float]]]:
    """The points of each line of a chart's picture."""
    picture = ET.fromstring(chart.svg())
    return [[tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()] for line in picture.iter(f"{SVG}polyline")]


def test_a_chart_is_a_picture_with_its_texts() -> None:
    """Title, axes, legend and shaded stretch are there, whatever signs they are made of."""
    chart = Chart("Calls & <more>", "minutes", "calls").line("a < b", [(0, 1), (10, 5)]).band(2, 4, "down & out")
    texts = {text.text for text in ET.fromstring(chart.svg()).iter(f"{SVG}text")}
    assert {"Calls & <more>", "minutes", "calls", "a < b", "down & out", "0", "10", "5"} <= texts


def test_a_chart_puts_points_where_they_belong() -> None:
    """Right is later, up is more; the axes begin and end inside the picture."""
    [[low, high]] = places(Chart("t", "x", "y").line("line", [(0, 0), (10, 5)]))
    assert low[0] < high[0]
    assert low[1] > high[1]
    [line] = places(Chart("t", "x", "y", log=True).line("line", [(0, 0), (1, 0.001), (2, 0.1), (3, 10)]))
    assert line[0][1] == line[1][1] > line[2][1] > line[3][1]
    assert line[1][1] - line[2][1] == pytest.approx(line[2][1] - line[3][1], abs=0.2)


@pytest.mark.parametrize("points", [[], [(0.0, 0.0)], [(5.0, 3.0), (5.0, 3.0)]])
def test_a_chart_of_little_is_still_a_picture(points: list[tuple[float, float]]) -> None:
    """No line, one point, or one place only."""
    ET.fromstring(Chart("t", "x", "y").line("line", points).svg())
    ET.fromstring(Chart("t", "x", "y", log=True).line("line", points).svg())


def test_a_chart_refuses_more_lines_than_colours() -> None:
    """Two lines of one colour could not be told apart."""
    chart = Chart("t", "x", "y")
    for number in range(len(LIGHT)):
        chart.line(str(number), [(0, 1)])
    with pytest.raises(ValueError, match="tell them apart"):
        chart.line("one more", [(0, 1)])
