"""Looking at jobs: by id with their history, and by filter, newest first; and removing old ones."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.contract import FIND_LIMIT_MAX, Found, Query
from mulligan.core.errors import UsageError
from mulligan.core.job import LIVE, Job, Status
from mulligan.stores.redis.layout import encode
from mulligan.stores.redis.rows import Raw, raws_of, read, shown
from mulligan.stores.redis.server import Server

PORTION = 500  # a script blocks the server while it runs


async def get(server: Server, ids: Sequence[str]) -> list[Job | None]:
    """The jobs with their histories, in the order of the ids; None where there is no such job."""
    jobs: dict[bytes, Job] = {}
    wanted = list(dict.fromkeys(ids))
    for at in range(0, len(wanted), PORTION):
        now_us, raws = await read(server, wanted[at : at + PORTION])
        jobs |= {raw.id: shown(raw, now_us) for raw in raws}
    return [jobs.get(job_id.encode()) for job_id in ids]


async def find(server: Server, query: Query, limit: int, after: str | None) -> Found:
    """One page of the jobs that match, newest first. Looks through the newest ids in bounded portions, one script call each."""
    filters = encode(tuple(value or False for value in (query.status, query.queue, query.task, query.lane, query.schedule, query.tag)))
    raws: list[Raw] = []
    below = (after or "").encode()
    while True:
        answer = await server.run("find", filters, limit + 1 - len(raws), below)
        raws += raws_of(answer.values[0])
        below = answer.values[1]
        if not below or len(raws) > limit:
            break
    jobs = [shown(raw, answer.now_us) for raw in raws[:limit]]
    return Found(jobs=jobs, after=jobs[-1].id if len(raws) > limit else None)


def check_limit(limit: int) -> None:
    """UsageError unless a page may be so long."""
    if not 1 <= limit <= FIND_LIMIT_MAX:
        raise UsageError(f"limit must be between 1 and {FIND_LIMIT_MAX}, not {limit}")


async def prune(server: Server, status: Status, older_than_us: int, limit: int) -> int:
    """Removes jobs that came to rest long enough ago, oldest first, with their histories; returns how many."""
    removed = 0
    while removed < limit:
        portion = min(PORTION, limit - removed)
        count, looked_at = (await server.run("prune", status, older_than_us, portion)).values
        removed += count
        if looked_at < portion:
            break
    return removed


def check_prunable(status: Status) -> None:
    """UsageError if jobs of this status are alive."""
    if status in LIVE:
        raise UsageError(f"only done, failed or cancelled jobs can be pruned, not {status} ones")
