"""What an operator's command says about each job it was given, and the exit code that follows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.cli.exits import NO, NOT_FOUND, OK
from mulligan.core.errors import JobNotFound


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the wish for one job."""

    id: str
    ok: bool
    status: str | None  # the job's status now; None: there is no such job
    text: str
    answer: str | None = None

    @classmethod
    def missing(cls, job_id: str, problem: JobNotFound) -> Answer:
        """The answer for a job that is not there."""
        return cls(id=job_id, ok=False, status=None, text=str(problem), answer="missing")


def report(verb: str, answers: Sequence[Answer], *, as_json: bool) -> int:
    """Prints the answers; the exit code is 3 if a job was missing, else 1 if any answer was no, else 0."""
    from mulligan.cli.output import emit, say

    if as_json:
        jobs = [{"id": one.id, verb: one.ok, "status": one.status, "answer": one.answer, "message": one.text} for one in answers]
        emit({"jobs": [{name: value for name, value in job.items() if value is not None or name == "status"} for job in jobs]})
    else:
        for one in answers:
            say(f"{one.id}: {one.text}", style="" if one.ok else "yellow", err=not one.ok)
    if any(one.status is None for one in answers):
        return NOT_FOUND
    return OK if all(one.ok for one in answers) else NO
