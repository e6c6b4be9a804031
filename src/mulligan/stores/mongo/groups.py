"""Which queues have ever had a job with a group. A claim of such a queue must look at groups (careful.py); others need not.

It is noted in the queue's own document of mulligan_queues, which every claim reads, before the first such job is written. It stays there.
"""

from __future__ import annotations

from collections.abc import Iterable

from pymongo import UpdateOne

from mulligan.core.job import Job, NewJob
from mulligan.stores.mongo.database import Database

# A queue's document says what operators have set, once they have set something; the note alone is no setting.
HAS_SETTINGS = {"updated_at_us": {"$exists": True}}


async def note_groups(database: Database, jobs: Iterable[NewJob | Job]) -> None:
    """To be called before jobs are written. Costs nothing if this process knows their queues already."""
    new = {job.queue for job in jobs if job.group is not None} - database.grouped
    if new:
        notes = [UpdateOne({"_id": queue}, {"$set": {"grouped": True}}, upsert=True) for queue in sorted(new)]
        await database.queues.bulk_write(notes, ordered=False)
        database.grouped |= new
