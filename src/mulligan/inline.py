"""The job a handler sees when its task is called directly, without the queue."""

from __future__ import annotations

from mulligan.core.job import Job, NewJob


def inline_job(new: NewJob, now_us: int) -> Job:
    """As if it had been enqueued, claimed and started right now."""
    return Job(
        id=new.id,
        queue=new.queue,
        task=new.task,
        payload=new.payload,
        policy=new.policy,
        max_retries=new.max_retries,
        priority=new.priority,
        lane="fresh",
        status="processing",
        run_at_us=None,
        created_at_us=now_us,
        updated_at_us=now_us,
        finished_at_us=None,
        due_first_us=now_us,
        attempts=1,
        failures=0,
        crashes=0,
        snoozes=0,
        releases=0,
        generation=1,
        timeout_us=new.timeout_us,
        max_age_us=new.max_age_us,
        fence=1,
        claim_id=None,
        settle_id=None,
        lease_owner="inline",
        lease_expires_at_us=None,
        last_delay_us=None,
        last_error=None,
        result_json=None,
        schedule=new.schedule,
        tick_us=new.tick_us,
        unique_key=new.unique_key,
        concurrency_key=new.concurrency_key,
        fair_key=new.fair_key,
        tags=new.tags,
        trace=new.trace,
        cancel_requested=False,
        read_at_us=now_us,
    )
