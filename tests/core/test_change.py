from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.change import Change, Held, check_writable
from mulligan.core.codec import MESSAGE_CHARS_MAX, PAYLOAD_BYTES_MAX, TRACEBACK_CHARS_MAX
from mulligan.core.errors import StoreRejected
from mulligan.core.job import ErrorInfo, HistoryRecord


def change(**fields: Any) -> Change:
    """A failure of job j."""
    given: dict[str, Any] = {"guard": Held(1), "settle_id": "s", "cause": "failure", "status": "failed", "lane": "retry"}
    counters = dict.fromkeys(("attempts", "failures", "crashes", "snoozes", "releases", "generation"), 1)
    return Change(job_id="j", queue="q", task="t", **(given | counters | fields))


def error(**fields: Any) -> ErrorInfo:
    """An error with these fields."""
    return ErrorInfo(**({"type": "E", "message": ""} | fields))


def record(of: ErrorInfo) -> HistoryRecord:
    """A record of an error."""
    return HistoryRecord(generation=1, fence=1, attempt=1, outcome="failure", error=of)


@pytest.mark.parametrize(
    "fields, what",
    [
        ({"error": error(message="\0")}, "the error message holds a NUL character"),
        ({"error": error(message="\ud800")}, "the error message holds a lone surrogate"),
        ({"error": error(message="x" * (2 * MESSAGE_CHARS_MAX + 1))}, "the error message has 8,001 characters, the limit is 8,000"),
        ({"error": error(traceback="\0")}, "the traceback holds a NUL"),
        ({"error": error(traceback="x" * (2 * TRACEBACK_CHARS_MAX + 1))}, "the traceback has 16,001 characters"),
        ({"error": error(type="\0")}, "the error type or code holds a NUL"),
        ({"error": error(code="\udfff")}, "the error type or code holds a lone surrogate"),
        ({"record": record(error(message="\0"))}, "the error message holds a NUL"),
        ({"result_json": "\0"}, "the result holds a NUL"),
        ({"result_json": "x" * (PAYLOAD_BYTES_MAX + 1)}, "the result has 1,048,577 characters"),
        ({"why": "\ud800"}, "the reason holds a lone surrogate"),
        ({"error": error(), "why": "\0"}, "the reason holds a NUL"),
        ({"error": error(), "record": record(error(code="\0"))}, "the error type or code holds a NUL"),
    ],
)
def test_texts_that_not_every_store_keeps_are_rejected(fields: dict[str, Any], what: str) -> None:
    """The rejection names the job and the text, is final, and never repeats the text itself."""
    with pytest.raises(StoreRejected, match=f"^job j: {what}") as caught:
        check_writable(change(**fields))
    assert not caught.value.retryable
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"error": error(message="ä😀" * 100, traceback="漢字\n", code="404"), "why": "ö", "result_json": '"\\u0000"'},
        {"error": error(message="x" * 2 * MESSAGE_CHARS_MAX, traceback="x" * 2 * TRACEBACK_CHARS_MAX)},
        {"result_json": "x" * PAYLOAD_BYTES_MAX, "record": record(error())},
    ],
)
def test_texts_within_the_rules_pass(fields: dict[str, Any]) -> None:
    """Whole Unicode up to the limits is fine."""
    check_writable(change(**fields))
