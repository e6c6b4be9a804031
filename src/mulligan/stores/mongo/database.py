"""The collections of one store, each with the guarantees it needs, and the server's clock.

Jobs and settings are written with the majority of the members and their journals. What a lost write could only make slower (claim ids,
marks, hints) is acknowledged by the primary alone: a later write with the majority carries it along, because a member's log has one order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any

from bson import CodecOptions, decode
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.read_concern import ReadConcern

from mulligan.core.clock import datetime_to_us, system_rng
from mulligan.core.ids import new_id
from mulligan.core.ring import Stretches

Doc = dict[str, Any]
Collection = AsyncCollection[Doc]
Client = AsyncMongoClient[Doc]
Session = AsyncClientSession

SERVER_NOW_US: Doc = {"$multiply": [{"$toLong": "$$NOW"}, 1_000]}  # the server's clock counts milliseconds


class Database:
    """Where a store keeps its things. Belongs to the event loop of its client."""

    def __init__(self, client: Client, name: str, *, clock: Callable[[], int | None], wait_ms: int, letters: str | None) -> None:
        self.client = client
        self.name = name
        self._clock = clock
        self._wait_ms = wait_ms
        sure = WriteConcern("majority", wtimeout=wait_ms, j=True)
        quick = WriteConcern(1)
        self.plain = client.get_database(
            name, write_concern=sure, read_concern=ReadConcern("local"), read_preference=ReadPreference.PRIMARY
        )
        self.jobs: Collection = self.plain["mulligan_jobs"]
        # What people and other processes see must not be taken back by a fail-over.
        self.seen_jobs: Collection = self.jobs.with_options(read_concern=ReadConcern("majority"))
        self.marks: Collection = self.jobs.with_options(write_concern=quick)
        self.claims: Collection = self.plain["mulligan_claims"].with_options(write_concern=quick)
        self.events: Collection = self.plain["mulligan_events"].with_options(read_concern=ReadConcern("majority"))
        self.quick_events: Collection = self.plain["mulligan_events"].with_options(write_concern=quick)
        self.queues: Collection = self.plain["mulligan_queues"]
        self.schedules: Collection = self.plain["mulligan_schedules"]
        self.workers: Collection = self.plain["mulligan_workers"]
        self.meta: Collection = self.plain["mulligan_meta"]
        self.limits: Collection = self.plain["mulligan_limits"]
        self.notes: Collection = self.plain["mulligan_notes"]
        self.hints: Collection = self.plain["mulligan_hints"].with_options(write_concern=quick)
        self.letters: Collection | None = None if letters is None else self.plain[letters]
        self.token = new_id(0)  # by which this process knows its own hints
        self.last_chunk = 0  # where the event log ended when last seen (eventlog.py)
        self.is_last_chunk_full = False  # as far as this process knows
        self.rng = system_rng()
        self.claiming = asyncio.Lock()  # of those that lost to another: claims of one process need not fight (claim.py)
        self.claims_made = 0  # by this process; old claim ids are removed now and then
        self.charges_made = 0  # claims that took tokens; old buckets are removed now and then
        self.careful = asyncio.Lock()  # of claims and renewals that keep limits: those of one process need not fight (careful.py)
        self.grouped: set[str] = set()  # queues that are known to have had a job with a group (groups.py)
        self.depths: dict[str, tuple[float, int]] = {}  # of lines: how many jobs their groups have, and how long to leap (turns.py)
        self.stretches = Stretches()

    def now_term(self) -> Any:
        """Now, as a term of an aggregation or of an update by pipeline: a test's clock, or the server's own at the time it runs."""
        now_us = self._clock()
        return SERVER_NOW_US if now_us is None else now_us

    async def now_us(self) -> int:
        """Now, asked of the primary unless a test has a clock of its own."""
        now_us = self._clock()
        if now_us is not None:
            return now_us
        answer = await self.plain.command("hello")
        return datetime_to_us(answer["localTime"].replace(tzinfo=UTC), "the server's time")

    async def rows(self, collection: Collection, pipeline: list[Doc], **options: Any) -> list[Doc]:
        """All documents an aggregation makes."""
        return await (await collection.aggregate(pipeline, **options)).to_list()

    async def confirm(self) -> None:
        """Waits until the majority has everything that was written so far: a write that changes nothing waits for what was before it."""
        await self.meta.update_one({"_id": "nothing"}, {"$set": {"nothing": True}})

    async def docs(
        self,
        collection: Collection,
        query: Mapping[str, Any],
        fields: Mapping[str, Any] | None = None,
        *,
        hint: str = "_id_",
        sort: Sequence[tuple[str, int]] = (),
        limit: int = 0,
        batch: int = 0,
        session: AsyncClientSession | None = None,
    ) -> list[Doc]:
        """The documents a query finds. A text in one of them that is no UTF-8 comes as bytes, and does not keep the others from coming.

        `batch` is how many of them may come in the first answer; the server's own number is a hundred.
        """
        found = collection.find(query, fields, hint=hint, limit=limit, batch_size=batch, sort=list(sort) or None, session=session)
        try:
            return await found.to_list()
        except InvalidBSON:
            raw = collection.with_options(codec_options=CodecOptions(document_class=RawBSONDocument))
            again = raw.find(query, fields, hint=hint, limit=limit, sort=list(sort) or None, session=session)
            return [_decoded(bytes(doc.raw)) for doc in await again.to_list()]


def _decoded(raw: bytes) -> Doc:
    try:
        return decode(raw)
    except InvalidBSON:
        doc: Doc = decode(raw, CodecOptions(unicode_decode_error_handler="replace"))
        return {name: value.encode() if isinstance(value, str) and "\ufffd" in value else value for name, value in doc.items()}
