"""requeue, cancel, pause and resume: each says what happened, and its exit code says whether it did."""

from __future__ import annotations

from mulligan import Job, Mulligan
from tests.builders import fresh_id
from tests.cli.conftest import Run, Shop


def job_of(shop: Shop, job_id: str) -> Job:
    async def read(app: Mulligan) -> Job:
        return await app.get(job_id)

    return shop.do(read)


def failed(shop: Shop) -> str:
    job_id = shop.enqueue("refused")
    shop.work()
    return job_id


def test_requeue_sends_a_failed_job_back(run: Run, shop: Shop) -> None:
    """It is pending in a new generation, and the history knows who did it."""
    job_id = failed(shop)
    answer = run("requeue", job_id, "--by", "anna")
    assert answer.code == 0
    assert answer.out == f"{job_id}: requeued: refused on queue default, generation 2\n"
    job = job_of(shop, job_id)
    assert (job.status, job.generation, job.attempts) == ("pending", 2, 0)
    assert "anna" in job.history[-1].why


def test_requeue_leaves_other_jobs_alone(run: Run, shop: Shop) -> None:
    """A job that is not failed is told on stderr; the exit code is 1, and those that are failed go back all the same."""
    bad, pending = failed(shop), shop.enqueue()
    answer = run("requeue", bad, pending)
    assert answer.code == 1
    assert "requeued: refused" in answer.out
    assert "only a failed job" in answer.err
    assert job_of(shop, bad).status == job_of(shop, pending).status == "pending"
    assert run("requeue", bad, "--json").json["jobs"][0]["requeued"] is False


def test_requeue_of_a_missing_job_wins_the_exit_code(run: Run, shop: Shop) -> None:
    """One missing among several ends with 3; the others are treated."""
    bad, missing = failed(shop), fresh_id()
    answer = run("requeue", missing, bad, "--json")
    assert answer.code == 3
    gone, done = answer.json["jobs"]
    assert (gone["id"], gone["requeued"], gone["status"]) == (missing, False, None)
    assert (done["id"], done["requeued"], done["status"]) == (bad, True, "pending")


def test_cancel_has_three_answers(run: Run, shop: Shop) -> None:
    """A waiting job is cancelled, a running one asked to stop, an ended one left as it is."""
    ended = failed(shop)
    running = shop.enqueue()

    async def claim(app: Mulligan) -> None:
        assert [lease.id for lease in await app.claim()] == [running]

    shop.do(claim)
    waiting = shop.enqueue()
    answer = run("cancel", waiting, running, "--json")
    assert answer.code == 0
    assert [(job["id"], job["answer"], job["cancelled"]) for job in answer.json["jobs"]] == [
        (waiting, "cancelled", True),
        (running, "requested", True),
    ]
    assert job_of(shop, waiting).status == "cancelled"
    assert job_of(shop, running).cancel_requested
    late = run("cancel", ended)
    assert late.code == 1
    assert "ended already (failed)" in late.err
    assert run("cancel", ended, fresh_id()).code == 3


def test_pause_and_resume_say_whether_they_changed_anything(run: Run, shop: Shop) -> None:
    """The second of the same is a no, and the reason is kept for those who ask."""
    job_id = shop.enqueue()
    first = run("pause", "default", "--reason", "bank is down", "--by", "anna")
    assert first.code == 0
    assert "mulligan resume default" in first.out
    story = run("why", job_id).out
    assert "paused since" in story
    assert "by anna (bank is down)" in story
    assert run("pause", "default", "--json").json["changed"] is False
    assert run("pause", "default").code == 1
    resumed = run("resume", "default", "--json")
    assert resumed.code == 0
    assert {"queue": "default", "paused": False, "changed": True}.items() <= resumed.json.items()
    again = run("resume", "default")
    assert again.code == 1
    assert "was not paused" in again.out


def test_a_paused_queue_is_not_served(run: Run, shop: Shop) -> None:
    """What the command says holds for the workers."""
    job_id = shop.enqueue()
    run("pause", "default")
    shop.work()
    assert job_of(shop, job_id).status == "pending"
    run("resume", "default")
    shop.work()
    assert job_of(shop, job_id).status == "done"
