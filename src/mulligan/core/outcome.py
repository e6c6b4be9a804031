"""What can become of one claim. Every outcome goes through policy/decide, whoever noticed it."""

from __future__ import annotations

from typing import Literal

import msgspec

from mulligan.core.job import ErrorInfo

Ruling = Literal["retry", "give_up", "snooze"]


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    """The handler returned."""

    result_json: str | None = None


class Raised(msgspec.Struct, frozen=True, gc=False):
    """The handler raised, ran out of time, or failed by hand; classify has ruled what the error calls for."""

    error: ErrorInfo
    ruling: Ruling = "retry"
    rule: str = ""  # which rule decided, in words, for the history
    after_us: int | None = None  # an explicit wait: Retry(after=), Retry-After, or the snooze of snooze_on
    retry_after_us: int | None = None  # the Retry-After that the error carries, uncut: a downstream asks everybody to leave it alone
    timed_out: bool = False
    asked: bool = False  # the handler asked for the retry itself, with Retry
    code_missing: bool = False  # the task's own rules were not at hand; the frozen numbers decided


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to be run later, without spending a retry."""

    delay_us: int
    message: str = ""


class Released(msgspec.Struct, frozen=True):
    """Claimed but not run (shutdown, unknown task): goes back uncounted, in the lane it came from."""

    reason: str
    delay_us: int = 0


class CancelObeyed(msgspec.Struct, frozen=True):
    """The handler stopped because it was cancelled, or raised Cancel."""

    reason: str = ""


class LeaseLost(msgspec.Struct, frozen=True):
    """The holder vanished: its lease ran out, or its process died."""

    reason: str = "the lease ran out"
    lapsed: bool = True  # True: guarded by expiry too, so that a renewal in between wins


class Expired(msgspec.Struct, frozen=True):
    """Claimed when it was already past its maximum age; not run."""


class Unstorable(msgspec.Struct, frozen=True):
    """The true outcome could not be written by the store."""

    reason: str


class Requeued(msgspec.Struct, frozen=True):
    """An operator sends a failed job back."""

    by: str = ""
    delay_us: int = 0


Outcome = Succeeded | Raised | Snoozed | Released | CancelObeyed | LeaseLost | Expired | Unstorable | Requeued
