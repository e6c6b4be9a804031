"""Receipts of finished steps: one hash per job, written under the grip of its holder; the first of a name stays."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.change import Grip
from mulligan.core.receipt import (
    FEW,
    RECEIPT_BYTES_BESIDE,
    RECEIPTS_BYTES_BEFORE,
    RECEIPTS_MAX,
    Receipt,
    in_order,
    too_large,
    too_many,
    undecodable,
)
from mulligan.stores.redis.layout import array_of, encode, run_of
from mulligan.stores.redis.server import Server

PORTION = 5  # jobs in one script; it blocks the server while it runs, and each of them may have megabytes
PACKED = 23  # bytes at most of fence, time and the value's head, which lie with the value
_decoder = msgspec.msgpack.Decoder(tuple[int, int, str | None])


async def put_receipt(server: Server, grip: Grip, name: str, value_json: str | None) -> Receipt | None:
    """Stores the receipt of a step, or finds the one that is there; None if the grip does not hold."""
    given = (name, int(value_json is not None), value_json or "")
    bounds = (RECEIPTS_MAX, FEW, RECEIPT_BYTES_BESIDE - PACKED, RECEIPTS_BYTES_BEFORE)
    what, text = (await server.run("receipt", grip.job_id, grip.fence, *given, *bounds)).values
    if what == b"full":
        raise too_many(grip.job_id)
    if what == b"large":
        raise too_large(grip.job_id)
    return _receipt_of(name.encode(), text) if what == b"kept" else None


async def receipts(server: Server, ids: Sequence[str]) -> list[list[Receipt]]:
    """The receipts of each job, in the order in which they were stored."""
    found: list[list[Receipt]] = []
    for at in range(0, len(ids), PORTION):
        [flats] = (await server.run("receipts", encode(ids[at : at + PORTION]))).values
        found += [in_order(_receipt_of(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)) for flat in flats]
    return found


def receipt_run(receipt: Receipt) -> bytes:
    """A receipt as lua/receipt.lua packs it."""
    return run_of((receipt.fence, receipt.at_us, receipt.value_json))


def _receipt_of(name: bytes, text: bytes) -> Receipt:
    shown = name.decode("utf-8", "replace")
    try:
        fence, at_us, value_json = _decoder.decode(array_of(text, 3))
    except (msgspec.DecodeError, UnicodeError) as problem:
        return undecodable(shown, problem)
    return Receipt(name=shown, value_json=value_json, fence=fence, at_us=at_us)
