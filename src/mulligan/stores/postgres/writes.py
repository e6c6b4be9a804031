"""Rows to write, and the parameters of the statement that writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.change import Change
from mulligan.core.job import Status
from mulligan.stores.postgres.rows import to_json

SETTLE = "SELECT at_us, written FROM {s}.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"


def joined(texts: Sequence[str], joint: str) -> str | None:
    """The texts as one, for string_to_array on the server: both it and the driver take less time for that than for an array with a value of
    its own for each row. None if the joint is in one of them: an app's ids have no comma, and its JSON no line break, but others may."""
    text = joint.join(texts)
    return text if text.count(joint) == max(0, len(texts) - 1) else None


class Write(msgspec.Struct):
    """One row to write."""

    change: Change
    before: Status
    fence: int
    status: Status


def params_of(now_us: int | None, writes: Sequence[Write]) -> list[Any]:
    """The parameters of SETTLE, in the order of ids, which is the order in which rows are locked."""
    writes = sorted(writes, key=lambda write: write.change.job_id)
    changes = [write.change for write in writes]
    kinds: dict[tuple[Any, ...], int] = {}
    kind_of_each = [kinds.setdefault(_kind_of(write), len(kinds) + 1) for write in writes]
    return [
        now_us,
        [change.job_id for change in changes],
        [write.fence for write in writes],
        kind_of_each,
        [None if change.error is None else to_json(change.error) for change in changes],
        [change.result_json for change in changes],
        [change.settle_id for change in changes],
        [write.change.delay_us if write.status == "pending" else None for write in writes],
        [change.last_delay_us for change in changes],
        *(list(column) for column in zip(*kinds, strict=True)),
    ]


def _kind_of(write: Write) -> tuple[Any, ...]:
    """What is mostly the same for all rows of a batch, in the order of SETTLE's parameters."""
    change = write.change
    return (
        write.before,
        write.status,
        change.lane,
        change.attempts,
        change.failures,
        change.crashes,
        change.snoozes,
        change.releases,
        change.generation,
    )
