"""Several processes on one store: no job twice, none lost, each gets its share, one holder at a time."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from mulligan import Mulligan
from tests.processes.children import Nursery, until
from tests.processes.ledger import Line, read

scale = [pytest.mark.scale, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "processes, jobs",
    [(2, 4_000), (4, 4_000), pytest.param(2, 100_000, marks=scale), pytest.param(4, 100_000, marks=scale)],
)
async def test_processes_drain_one_store_together(nursery: Nursery, app: Mulligan, processes: int, jobs: int) -> None:
    """Every job runs once, under fence 1, and each process runs at least a quarter of its even share."""
    await app.pause("default")  # the start gun: all are ready before the first claim
    ids = set()
    for start in range(0, jobs, 10_000):
        batch = [app.state.quick.job(number) for number in range(start, min(jobs, start + 10_000))]
        ids |= {handle.id for handle in await app.enqueue_many(batch)}
    servers = [nursery.server(concurrency=20, ahead=50) for _ in range(processes)]
    await app.resume("default")

    async def all_done() -> bool:
        return (await app.status())["default"].done == jobs

    await until(all_done, within_s=40 + jobs / 500, pause_s=0.05)
    for server in servers:
        server.finish()
    runs = read(nursery.ledger, "RUN")
    assert Counter(run.job for run in runs) == Counter(ids)
    assert {run.fence for run in runs} == {1}
    shares = Counter(run.pid for run in runs)
    print(f"{processes} processes, {jobs} jobs: shares {sorted(shares.values())}")
    assert set(shares) == {server.pid for server in servers}
    assert min(shares.values()) >= jobs / processes / 4
    status = (await app.status())["default"]
    assert (status.done, status.failed, status.running, status.queue_size, status.retry_queue_size) == (jobs, 0, 0, 0, 0)


def lives(lines: list[Line]) -> dict[str, dict[int, dict[str, Line]]]:
    """The ledger by job and fence: kind -> line. A second line of a kind under one fence would be a second holder."""
    found: dict[str, dict[int, dict[str, Line]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        assert line.kind not in found[line.job][line.fence], f"twice: {line}"
        found[line.job][line.fence][line.kind] = line
    return found


@pytest.mark.parametrize("processes, jobs", [(4, 200), pytest.param(4, 20_000, marks=scale)])
async def test_each_job_claimed_three_times_has_one_holder_at_a_time(nursery: Nursery, app: Mulligan, processes: int, jobs: int) -> None:
    """Two claimers in each; released, failed or lapsed at random: fences 1, 2, 3, one holder at a time, stale holders refused."""
    handles = await app.enqueue_many([app.state.quick.job(number) for number in range(jobs)])
    claimers = [nursery.start("claimer", nursery.url, nursery.ledger, seed, jobs) for seed in range(processes)]
    for claimer in claimers:
        await claimer.said("ready")
    for claimer in claimers:
        claimer.tell("go")
    for claimer in claimers:
        await claimer.said("stopped", within_s=40 + jobs / 20)
    taken_over: set[tuple[str, int]] = set()
    by_job = lives(read(nursery.ledger, "CLAIM", "RELEASED", "FAILED", "CRASHED", "COMPLETED", "SHORT"))
    assert set(by_job) == {handle.id for handle in handles}
    for job_id, fences in by_job.items():
        assert sorted(fences) == [1, 2, 3]
        ended_us = 0
        ends: Counter[str] = Counter()
        for fence, kinds in sorted(fences.items()):
            [end] = set(kinds) - {"CLAIM", "SHORT"}
            assert ended_us <= kinds["CLAIM"].at_us <= kinds[end].at_us
            ended_us = kinds[end].at_us
            ends[end] += 1
            if end == "CRASHED":
                taken_over.add((job_id, fence))
                short = kinds["SHORT"]
                assert kinds[end].at_us >= short.at_us + float(short.more) * 1e6  # not before the lease had ended
        job = await app.get(job_id)
        assert (job.status, job.result, job.fence) == ("done", "done", 3)
        assert (job.crashes, job.failures, job.releases) == (ends["CRASHED"], ends["FAILED"], ends["RELEASED"])
        assert job.attempts == 3 - job.releases
        assert [record.fence for record in job.history] == [1, 2]
    assert read(nursery.ledger, "ACCEPTED") == []
    assert {(line.job, line.fence) for line in read(nursery.ledger, "REFUSED")} == taken_over
    assert len(taken_over) > jobs / 4


@pytest.mark.parametrize("jobs", [100, pytest.param(5_000, marks=scale)])
async def test_p07_a_requeue_raced_by_two_processes_has_one_winner(nursery: Nursery, app: Mulligan, jobs: int) -> None:
    """Two operators send back the same failed job at once, again and again: one hears True, the other False (P07)."""
    handles = await app.enqueue_many([app.state.hopeless.job() for _ in range(jobs)])
    async with app.worker() as worker:
        await worker.drain()
    operators = [nursery.start("requeuer", nursery.url, name) for name in ("ann", "bob")]
    for operator in operators:
        await operator.said("ready")
    answers = []
    for handle in handles:
        for operator in operators:
            operator.tell(handle.id)
        answers.append([await operator.said("answer") == "True" for operator in operators])
    assert [sorted(pair) for pair in answers] == [[False, True]] * jobs
    print(f"of {jobs} requeues ann won {sum(ann for ann, _ in answers)}, bob {sum(bob for _, bob in answers)}")
    for handle, (ann_won, _) in zip(handles, answers, strict=True):
        job = await handle.job()
        assert (job.status, job.generation, job.attempts, job.lane) == ("pending", 2, 0, "retry")
        requeues = [record.worker for record in job.history if record.outcome == "requeue"]
        assert requeues == ["ann" if ann_won else "bob"]


@pytest.mark.parametrize("ticks", [10, pytest.param(300, marks=scale)])
async def test_o16_two_schedulers_make_one_job_per_tick(nursery: Nursery, app: Mulligan, ticks: int) -> None:
    """Two processes that put and run the same schedule make one job for each of its ticks, and none is missing (fault 39)."""
    interval_s = 0.1
    servers = [nursery.server(every=interval_s, concurrency=5) for _ in range(2)]

    async def enough() -> bool:
        return (await app.status()).queues != [] and (await app.status())["default"].done >= ticks

    await until(enough, within_s=30 + ticks * interval_s)
    for server in servers:
        server.finish()
    made = sorted([job async for job in app.jobs(schedule="every")], key=lambda job: job.tick_us or 0)
    [schedule] = await app.schedules()
    anchor_us, interval_us = schedule.schedule.anchor_us, schedule.schedule.interval_us
    wanted = [anchor_us + interval_us * number for number in range(1, len(made) + 1)]
    assert [job.tick_us for job in made] == wanted
    assert schedule.schedule.next_tick_us == wanted[-1] + interval_us
    runs = Counter(run.job for run in read(nursery.ledger, "RUN"))
    assert set(runs.values()) == {1}
    assert set(runs) <= {job.id for job in made}
    assert len(runs) >= ticks
