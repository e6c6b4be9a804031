"""Which policy rules a job: its frozen numbers, with the code (predicates, functions) of its task where this process has it."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.core.job import Job
from mulligan.policy.queues import Queue
from mulligan.policy.retry import THAWED_MAX, RetryPolicy, thaw
from mulligan.worker.registry import Registry, TaskDef


class Policies:
    """Merges task over queue over app once per task, and reads the numbers from the job."""

    def __init__(self, registry: Registry, queues: Mapping[str, Queue], base: RetryPolicy | None) -> None:
        self._registry = registry
        self._queues = queues
        self._base = base
        self._code: dict[tuple[str, str], RetryPolicy | None] = {}
        self._known: dict[tuple[str, str, str], RetryPolicy] = {}

    def for_job(self, job: Job) -> RetryPolicy:
        """The policy that decides about this job, here."""
        known = self._known.get((job.task, job.queue, job.policy))
        if known is None:
            if len(self._known) >= THAWED_MAX:  # stored data must not grow this process
                self._known.clear()
                self._code.clear()
            known = self._known[(job.task, job.queue, job.policy)] = self._read(job)
        return known

    def _read(self, job: Job) -> RetryPolicy:
        key = (job.task, job.queue)
        if key not in self._code:
            self._code[key] = self._merge(*key)
        return thaw(job.policy, self._code[key])

    def for_task(self, task: TaskDef, queue_name: str) -> RetryPolicy:
        """The policy that new jobs of a task start from in this queue."""
        return merged(task.retry, self._queues[queue_name].retry if queue_name in self._queues else None, self._base)

    def _merge(self, task_name: str, queue_name: str) -> RetryPolicy | None:
        task = self._registry.get(task_name)
        # Where its code is not at hand, the frozen numbers decide alone.
        return None if task is None else self.for_task(task, queue_name)


def merged(*policies: RetryPolicy | None) -> RetryPolicy:
    """One policy from several, the first one winning field by field."""
    result = RetryPolicy()
    for policy in policies:
        if policy is not None:
            result = result.over(policy)
    return result
