"""MongoDB's errors, in the words of core/errors: what may be tried again, and what will be refused again."""

from __future__ import annotations

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)

from mulligan.core.errors import BadSetting, MulliganError, StoreRejected, StoreUnavailable

SHOWN_MAX = 300

# The data is at fault: a repeat would fail again, and a batch must be split to find it.
_REJECTED = {2, 9, 14, 22, 52, 54, 57, 121, 10334, 11000, 17280, 17419, 17420, 28724}
_ACCESS = {
    13: "this user may not do that; give it the role readWrite on the database",
    18: "it refuses the user or the password; see the user, the password and authSource in the URL",
}
_NAME_TROUBLE = ("DNS", "resolution", "nameserver")
_ADVICE = {
    **_ACCESS,
    64: "the majority of the members did not confirm the write in time; it may have been written. See whether enough members run",
    79: "the replica set has no write concern of that name",
    100: "the replica set has too few members that hold data to confirm a write",
    14031: "its disk is full; free some space, nothing is lost meanwhile",
}


def translated(problem: Exception, where: str) -> MulliganError:
    """The error to raise instead of a driver's; errors of our own pass unchanged."""
    if isinstance(problem, MulliganError):
        return problem
    text = _cut(str(problem))
    if isinstance(problem, ConfigurationError):
        if any(word in text for word in _NAME_TROUBLE):
            return StoreUnavailable(f"{where}: the host's name cannot be looked up: {text}")
        return BadSetting(f"{where}: {text}")
    if isinstance(problem, (DocumentTooLarge, BSONError, UnicodeError, OverflowError)):
        return StoreRejected(f"MongoDB cannot store this value: {text}")
    if isinstance(problem, BulkWriteError):
        return _of_bulk(problem, where)
    if isinstance(problem, OperationFailure):
        return _of_code(problem, where)
    if isinstance(problem, ServerSelectionTimeoutError):
        return StoreUnavailable(f"{where}: no primary can be reached; see whether the servers run and the network lets through: {text}")
    if isinstance(problem, (ConnectionFailure, InvalidOperation, PyMongoError, OSError)):
        return StoreUnavailable(f"{where}: {text}")
    return StoreUnavailable(f"{where}: {type(problem).__name__}: {text}")


def is_access_refused(problem: Exception) -> bool:
    """Whether the server knows this user and refuses it, or does not know it."""
    return isinstance(problem, OperationFailure) and problem.code in _ACCESS


def _of_bulk(problem: BulkWriteError, where: str) -> MulliganError:
    errors = problem.details.get("writeErrors") or []
    codes = {error.get("code") for error in errors}
    text = str(errors[0].get("errmsg"))[:SHOWN_MAX] if errors else ""
    # A write the majority did not confirm is unknown, whatever else is in the answer: a repeat of it meets itself as a duplicate.
    concerns = problem.details.get("writeConcernErrors") or []
    if concerns:
        return _unavailable(int(concerns[0].get("code", 64)), str(concerns[0].get("errmsg"))[:SHOWN_MAX], where)
    if codes and codes <= _REJECTED:
        return StoreRejected(f"{where}: MongoDB refuses this write: {text}")
    return _unavailable(int(next(iter(codes), 0) or 0), text, where)


def _of_code(problem: OperationFailure, where: str) -> MulliganError:
    code = problem.code or 0
    text = _cut(str(problem.details.get("errmsg", "") if problem.details else problem)) or _cut(str(problem))
    if code in _ACCESS:
        return BadSetting(f"{where}: {text}: {_ACCESS[code]}")
    if isinstance(problem, WriteConcernError):
        return _unavailable(code, text, where)
    if problem.has_error_label("TransientTransactionError") or problem.has_error_label("RetryableWriteError"):
        return _unavailable(code, text, where)
    return StoreRejected(f"{where}: MongoDB refuses this: {text}") if code in _REJECTED else _unavailable(code, text, where)


def _unavailable(code: int, text: str, where: str) -> StoreUnavailable:
    advice = _ADVICE.get(code)
    return StoreUnavailable(f"{where}: {text}" + (f": {advice}" if advice else f" (code {code})"))


def _cut(text: str) -> str:
    """The driver's words without its inventory of the servers, and without the command a user may not give."""
    for mark in (" (configured timeouts", ", Timeout: ", " to execute command"):
        text = text.partition(mark)[0]
    return text[:SHOWN_MAX]
