"""The writing of settled changes: many jobs in one statement.

An update of one document costs the server five times as much as one of many that an index leads to, so the changes whose guards are equal
are one update: it looks up the values of each document by the place of its id in a list. A change that takes a unique key is an
update of its own, because a refused key ends a statement, and must end no other change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
from pymongo import UpdateMany, UpdateOne

from mulligan.core.change import Change, Dead, Held
from mulligan.core.job import HISTORY_MAX, LIVE
from mulligan.stores.mongo.database import Doc
from mulligan.stores.mongo.rows import OF_REST, OF_RUNNING, OF_WAITING, to_json
from mulligan.stores.mongo.schema import live_key_of, rest_of, waiting_place

T = TypeVar("T")
GROUP_MAX = 250  # jobs in one update; the search in the list costs as much as the rest beyond this
GROUP_BYTES_MAX = 4_000_000  # of texts in one update; a command may have 48 MB, a document in it 16 MB


class Place(NamedTuple):
    """What never changes in a job, and says where it is found."""

    queue: str
    priority: int
    unique_key: str | None
    group: str | None


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one job, ready to be written."""

    job_id: str
    settle_id: str
    guard: Doc
    common: Doc  # values as terms: equal for many jobs, may speak of the server's clock
    own: Doc  # values as they are
    removed: tuple[str, ...]
    record: str | None  # to be added to the history
    takes_key: bool

    @classmethod
    def of(
        cls,
        change: Change,
        *,
        guard: Doc,
        status: str,
        now: Any,
        run_at_us: int | None,
        place: Place,
        settled_before: str | None,
        letters: bool = False,
    ) -> Write:
        """The full field set of the new status. `now` is a time, or the term for the server's clock where nothing is computed from it."""
        queue, priority, unique_key, group = place
        requeued = isinstance(change.guard, Dead)
        common: Doc = {"updated_at_us": now}
        own: Doc = _counters(change) | {"status": status, "lane": change.lane, "settle_id": change.settle_id}
        removed = [*OF_RUNNING]
        texts = {
            "last_delay_us": change.last_delay_us,
            "last_error": None if change.error is None else to_json(change.error),
            "result_json": change.result_json,
            "settled_before": settled_before,
        }
        own |= {name: value for name, value in texts.items() if value is not None}
        removed += [name for name, value in texts.items() if value is None]
        if status == "pending":
            own |= {"run_at_us": run_at_us, "due_us": run_at_us, **waiting_place(queue, change.lane, priority, group)}
            removed += ["fifo_line", *OF_REST]
        else:
            common["finished_at_us"] = now
            own["rest"] = rest_of(queue, status)
            removed += OF_WAITING
        takes_key = requeued and unique_key is not None and status in LIVE
        if takes_key:
            own["live_key"] = live_key_of(queue, str(unique_key))
        elif status not in LIVE:
            removed.append("live_key")
        if requeued:
            removed.append("cancel_requested")
            if run_at_us is not None:
                own["due_first_us"] = run_at_us
        if letters and (requeued or status == "failed"):
            own["letter_due"] = True
        record = None if change.record is None else to_json(msgspec.structs.replace(change.record, ended_at_us=now))
        return cls(
            job_id=change.job_id,
            settle_id=change.settle_id,
            guard=guard,
            common=common,
            own=own,
            removed=tuple(removed),
            record=record,
            takes_key=takes_key,
        )


def _counters(change: Change) -> Doc:
    return {name: getattr(change, name) for name in _COUNTERS}


_COUNTERS = ("attempts", "failures", "crashes", "snoozes", "releases", "generation")
_likeness = attrgetter("guard.fence", "queue", "lane", *_COUNTERS)
_job_id = attrgetter("job_id")


def plain_updates(changes: Sequence[Change], now: Any) -> list[UpdateMany]:
    """The updates of a batch of nothing but successes of different jobs. Nothing is made for each of them but its part in the lists."""
    groups: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        groups.setdefault((_likeness(change), change.result_json is None), []).append(change)
    updates: list[UpdateMany] = []
    for group in groups.values():
        group.sort(key=_job_id)
        for part in _portions(group, [len(change.result_json or "") for change in group]):
            first = _plain_write(part[0], now)
            lists: dict[str, list[Any]] = {"settle_id": [change.settle_id for change in part]}
            if first.own.get("result_json") is not None:
                lists["result_json"] = [change.result_json for change in part]
            updates.append(_update(first, [change.job_id for change in part], lists))
    return updates


def _plain_write(change: Change, now: Any) -> Write:
    """A success that leaves its job's counters as they are, which is part of its guard; then few fields are written.

    Its queue is the change's: a job never changes its queue. One whose counters differ is written like any other change.
    """
    assert isinstance(change.guard, Held)
    own: Doc = {"status": "done", "settle_id": change.settle_id, "rest": rest_of(change.queue, "done")}
    removed = [*OF_RUNNING, "last_error", "last_delay_us", "live_key"]
    if change.result_json is None:
        removed.append("result_json")
    else:
        own["result_json"] = change.result_json
    return Write(
        job_id=change.job_id,
        settle_id=change.settle_id,
        guard={"status": "processing", "fence": change.guard.fence, "lane": change.lane, **_counters(change)},
        common={"updated_at_us": now, "finished_at_us": now, "settled_before": "$settle_id"},
        own=own,
        removed=tuple(removed),
        record=None,
        takes_key=False,
    )


def operations(writes: Sequence[Write]) -> list[UpdateMany | UpdateOne]:
    """The updates of a batch, to be sent together. They keep the order of changes that could meet: of one job, or around a unique key."""
    found: list[UpdateMany | UpdateOne] = []
    groups: dict[tuple[object, ...], list[Write]] = {}
    seen: set[str] = set()
    for write in writes:
        if write.job_id in seen or write.takes_key:
            found += _group_updates(groups)
            groups, seen = {}, set()
        seen.add(write.job_id)
        if write.takes_key:
            records = None if write.record is None else [write.record]
            found.append(UpdateOne({"_id": write.job_id, **write.guard}, _pipeline(write, [write.job_id], {}, records)))
        else:
            key = (str(write.guard), str(write.common), tuple(write.own), write.removed, write.record is None)
            groups.setdefault(key, []).append(write)
    return found + _group_updates(groups)


def _group_updates(groups: dict[tuple[object, ...], list[Write]]) -> list[UpdateMany | UpdateOne]:
    updates: list[UpdateMany | UpdateOne] = []
    for group in groups.values():
        group.sort(key=_job_id)
        for part in _portions(group, [_text_bytes(write) for write in group]):
            lists = {name: [write.own[name] for write in part] for name in part[0].own}
            records = None if part[0].record is None else [str(write.record) for write in part]
            updates.append(_update(part[0], [write.job_id for write in part], lists, records))
    return updates


def _update(first: Write, ids: list[str], lists: dict[str, list[Any]], records: list[str] | None = None) -> UpdateMany:
    varied = {name: each for name, each in lists.items() if each.count(each[0]) < len(each)}
    return UpdateMany({"_id": {"$in": ids}, **first.guard}, _pipeline(first, ids, varied, records), hint="_id_")


def _text_bytes(write: Write) -> int:
    return sum(len(text) for text in (write.own.get("result_json"), write.own.get("last_error"), write.record) if text)


def _portions(group: Sequence[T], sizes: Iterable[int]) -> list[list[T]]:
    portions: list[list[T]] = [[]]
    size = 0
    for one, grows in zip(group, sizes, strict=True):
        if portions[-1] and (len(portions[-1]) >= GROUP_MAX or size + grows > GROUP_BYTES_MAX):
            portions.append([])
            size = 0
        portions[-1].append(one)
        size += grows
    return portions


def _pipeline(first: Write, ids: list[str], varied: dict[str, list[Any]], records: list[str] | None) -> list[Doc]:
    """The update of jobs with equal guards. Values that are the same for all stand in it once; others are looked up by the id."""
    values: Doc = dict(first.common)
    place: Any = {"$indexOfArray": [{"$literal": ids}, "$_id"]}
    begin: list[Doc] = []
    if len(varied) + (records is not None) > 1:  # looked for once, and kept for the next stage
        begin, place = [{"$set": {"place": place}}], "$place"
        values["place"] = "$$REMOVE"
    for name, value in first.own.items():
        values[name] = {"$arrayElemAt": [{"$literal": varied[name]}, place]} if name in varied else {"$literal": value}
    if records is not None:
        record = {"$arrayElemAt": [{"$literal": records}, place]}
        history = {"$cond": [{"$isArray": "$history"}, "$history", []]}
        values["history"] = {"$slice": [{"$concatArrays": [history, [record]]}, -HISTORY_MAX]}
    values |= dict.fromkeys(first.removed, "$$REMOVE")
    return [*begin, {"$set": values}]
