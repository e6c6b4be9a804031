"""What operators set: the state of queues, and schedules with the jobs their ticks make."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pymongo.asynchronous.client_session import AsyncClientSession

from mulligan.core.contract import QueueState
from mulligan.core.errors import StoreUnavailable
from mulligan.core.events import Event
from mulligan.core.job import NewJob, first_row
from mulligan.core.schedule import Schedule, Tick, merged_schedule
from mulligan.stores.mongo.database import Database, Doc
from mulligan.stores.mongo.eventlog import append_events
from mulligan.stores.mongo.groups import HAS_SETTINGS, note_groups
from mulligan.stores.mongo.rows import document_of, to_json
from mulligan.stores.mongo.schema import live_key_of

_ROUNDS = 20
_pattern_decoder = msgspec.json.Decoder(NewJob)


async def set_queue(database: Database, queue: str, paused: bool, reason: str, by: str) -> tuple[QueueState, bool]:
    """Stores a queue's settings; also whether that paused or resumed it, which is then to be told (`tell_queue`)."""
    now_us = await database.now_us()
    values = {"paused": paused, "reason": reason, "by": by, "updated_at_us": now_us}
    before = await database.queues.find_one_and_update({"_id": queue}, {"$set": values}, upsert=True)
    changed = paused != (before is not None and before.get("paused") is True)
    return QueueState(queue=queue, paused=paused, reason=reason, by=by, updated_at_us=now_us), changed


async def tell_queue(database: Database, state: QueueState, call: str) -> None:
    """Notes in the event log that a queue was paused or resumed."""
    detail = {"reason": state.reason, "by": state.by}
    event = Event(kind="QUEUE_PAUSED" if state.paused else "QUEUE_RESUMED", at_us=state.updated_at_us, queue=state.queue, detail=detail)
    await append_events(database, [event], call)


async def queue_states(database: Database) -> list[QueueState]:
    """All stored queue settings, by name."""
    return [
        QueueState(
            queue=doc["_id"],
            paused=doc.get("paused") is True,
            reason=str(doc.get("reason", "")),
            by=str(doc.get("by", "")),
            updated_at_us=int(doc.get("updated_at_us", 0)),
        )
        for doc in await database.queues.find(HAS_SETTINGS).sort("_id", 1).to_list()
    ]


async def put_schedule(database: Database, schedule: Schedule) -> Schedule:
    """Stores a schedule; one of the same name and interval goes on from where it stands."""
    now_us = await database.now_us()
    for _ in range(_ROUNDS):
        known = await database.schedules.find_one({"_id": schedule.name})
        stored = merged_schedule(None if known is None else _schedule_of(known), schedule, now_us)
        doc = _document_of(stored)
        if known is None:
            # Only if there is still none; otherwise it is merged with the one that came in between.
            written = await database.schedules.update_one({"_id": schedule.name}, {"$setOnInsert": doc}, upsert=True)
            if written.upserted_id is not None:
                return stored
        else:
            as_seen = {"_id": schedule.name, **{name: known.get(name) for name in ("next_tick_us", "paused", "interval_us")}}
            if (await database.schedules.replace_one(as_seen, doc)).matched_count:
                return stored
    raise StoreUnavailable(f"the schedule {schedule.name!r} is changed by others all the time; the same call may be repeated")


async def set_schedule_paused(database: Database, name: str, paused: bool) -> bool:
    """Pauses or resumes a schedule; False if there is none of that name."""
    values = {"paused": paused, "updated_at_us": database.now_term()}
    return (await database.schedules.update_one({"_id": name}, [{"$set": values}])).matched_count == 1


async def remove_schedule(database: Database, name: str) -> bool:
    """Removes a schedule, not the jobs it made; False if there is none of that name."""
    return (await database.schedules.delete_one({"_id": name})).deleted_count == 1


async def schedules(database: Database) -> list[Schedule]:
    """All schedules, by name."""
    return [_schedule_of(doc) for doc in await database.schedules.find({}).sort("_id", 1).to_list()]


async def fire(database: Database, ticks: Sequence[Tick]) -> list[bool]:
    """Moves each schedule that still stands where the tick expects it, and inserts the tick's job in the same transaction."""
    await note_groups(database, [tick.job for tick in ticks if tick.job is not None])
    now_us = await database.now_us()
    return [await _fire(database, tick, now_us) for tick in ticks]


async def _fire(database: Database, tick: Tick, now_us: int) -> bool:
    async def both(session: AsyncClientSession) -> bool:
        as_expected = {"_id": tick.name, "paused": False, "next_tick_us": tick.expected_us}
        moved = await database.schedules.update_one(as_expected, {"$set": {"next_tick_us": tick.next_tick_us}}, session=session)
        if not moved.matched_count:
            return False
        if tick.job is not None and not await _stands(database, tick.job, session):
            await database.jobs.insert_one(document_of(first_row(tick.job, now_us)), session=session)
        return True

    async with database.client.start_session() as session:
        return await session.with_transaction(both, read_concern=database.jobs.read_concern, write_concern=database.jobs.write_concern)


async def _stands(database: Database, job: NewJob, session: AsyncClientSession) -> bool:
    """Whether the id is there, or a live job has the unique key: in both cases nothing is to be inserted.

    Looked up first, because a refused key would end the transaction. One that is taken in between ends it too, as a conflict, and it is
    run again.
    """
    same: list[Doc] = [{"_id": job.id}]
    if job.unique_key is not None:
        same.append({"live_key": live_key_of(job.queue, job.unique_key)})
    return await database.jobs.find_one({"$or": same}, {"_id": 1}, session=session) is not None


def _document_of(schedule: Schedule) -> Doc:
    return {
        "_id": schedule.name,
        "job": to_json(schedule.job),
        "interval_us": schedule.interval_us,
        "anchor_us": schedule.anchor_us,
        "next_tick_us": schedule.next_tick_us,
        "missed": schedule.missed,
        "paused": schedule.paused,
        "updated_at_us": schedule.updated_at_us,
    }


def _schedule_of(doc: Doc) -> Schedule:
    return Schedule(
        name=doc["_id"],
        job=_pattern_decoder.decode(doc["job"]),
        interval_us=int(doc["interval_us"]),
        anchor_us=int(doc["anchor_us"]),
        next_tick_us=int(doc["next_tick_us"]),
        missed=doc["missed"],
        paused=doc["paused"],
        updated_at_us=int(doc["updated_at_us"]),
    )
