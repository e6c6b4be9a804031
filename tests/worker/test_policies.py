"""Which policy rules a job: found once for each task, queue and stored text, and kept within a bound."""

from __future__ import annotations

import pytest

from mulligan import RetryPolicy
from mulligan.core.job import Job, first_row
from mulligan.policy.retry import freeze
from mulligan.worker import policies as module
from mulligan.worker.policies import Policies
from mulligan.worker.registry import Registry, define
from tests.builders import new_job


def job(task: str, max_retries: int) -> Job:
    """A job whose numbers were frozen with so many retries."""
    return first_row(new_job(task=task, policy=freeze(RetryPolicy(max_retries=max_retries))), 1)


async def pay() -> None:
    """A task."""


def test_a_policy_belongs_to_task_queue_and_text() -> None:
    """Each job has the numbers that were stored with it and the rules of its own task, also when its policy is asked for again."""
    registry = Registry()
    registry.add(define("strict", pay, retry=RetryPolicy(give_up_on=ValueError)))
    registry.add(define("mild", pay))
    policies = Policies(registry, {}, None)
    for _ in range(2):
        for task, rules in (("strict", (ValueError,)), ("mild", ()), ("unknown", ())):
            for retries in (1, 2):
                policy = policies.for_job(job(task, retries)).filled()
                assert (policy.max_retries, policy.give_up_on) == (retries, rules)


def test_known_policies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs with ever new policies do not make the process grow, and each still has its own."""
    monkeypatch.setattr(module, "THAWED_MAX", 3)
    policies = Policies(Registry(), {}, None)
    for retries in range(10):
        assert policies.for_job(job("t", retries)).max_retries == retries
        assert len(policies._known) <= 3
