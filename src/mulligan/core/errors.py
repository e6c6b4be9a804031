"""Every error mulligan raises, as one small tree.

MulliganError
├── UsageError            the caller asked for something that cannot be; nothing was changed
│   ├── BadSetting        a setting, option or URL out of its bounds
│   ├── BadPolicy         a retry policy that could not work
│   ├── BadPayload        arguments or a result that cannot be stored as JSON
│   ├── WrongArguments    arguments that do not fit the task's signature
│   ├── UnknownTask       no task of that name is registered or declared
│   ├── UnknownQueue      no queue of that name is known
│   └── IllegalMove       the call does not fit the state of the thing it is made on
├── JobNotFound           no job has that id
├── JobFailed             handle.result(): the job ended as failed
├── JobCancelled          handle.result(): the job was cancelled
├── ResultGone            handle.result(): the job is done, its result is no longer kept
├── LeaseLost             ctx.once(): this run no longer holds its job, and must stop
└── StoreError            the store could not do it; .retryable says if a repeat may help
    ├── StoreUnavailable  locked, unreachable or full for now (retryable)
    ├── StoreRejected     the store refuses this write, and will refuse it again
    └── SchemaMismatch    the store's schema is not the one this version speaks

JobSignal (a wish of the handler, not an error; raise it or return it)
├── Retry    run me again, after a while
├── Snooze   not now; does not spend a retry
├── Fail     give up for good
└── Cancel   not needed any more
"""

from __future__ import annotations

SHOWN_CHARS_MAX = 80


def shown(value: object) -> str:
    """A bad value as a message shows it: bounded, and never a reason to fail itself (a huge int has no text)."""
    try:
        return repr(value)[:SHOWN_CHARS_MAX]
    except Exception as problem:  # noqa: BLE001 - the repr of a stranger
        return f"a {type(value).__name__} that cannot be shown ({type(problem).__name__})"


class MulliganError(Exception):
    """Base of every error mulligan raises."""


class UsageError(MulliganError):
    """The call cannot be carried out as made; nothing was changed."""


class BadSetting(UsageError):
    """A setting, option or URL is out of its bounds."""


class BadPolicy(UsageError):
    """A retry policy that could not work; the message names the field."""


class BadPayload(UsageError):
    """Arguments or a result that cannot be stored as JSON; the message gives the path and the reason."""


class WrongArguments(UsageError, TypeError):
    """Arguments that do not fit the task's signature."""


class UnknownTask(UsageError, LookupError):
    """No task of that name is registered or declared in this app."""


class UnknownQueue(UsageError, LookupError):
    """No queue of that name is known to this store or app."""


class IllegalMove(UsageError):
    """The call does not fit the state of the thing it is made on."""


class JobNotFound(MulliganError, LookupError):
    """No job has that id; it may have been removed by retention."""


class JobFailed(MulliganError):
    """The job ended as failed. `.error` holds its last recorded error."""

    def __init__(self, message: str, error: object = None) -> None:
        super().__init__(message)
        self.error = error


class JobCancelled(MulliganError):
    """The job was cancelled."""


class ResultGone(MulliganError):
    """The job is done, but its result is no longer kept."""


class LeaseLost(MulliganError):
    """This run no longer holds its job: another may be running it now. Nothing of it is stored any more; let it end."""


class StoreError(MulliganError):
    """The store could not carry out a call."""

    retryable = False


class StoreUnavailable(StoreError):
    """The store is locked, unreachable or full for now; the same call may be repeated."""

    retryable = True


class StoreRejected(StoreError):
    """The store refuses this write and would refuse it again."""


class SchemaMismatch(StoreError):
    """The store's schema is not the one this version of mulligan speaks."""


class JobSignal(Exception):
    """What a handler may raise or return to choose what happens to its job."""


class Retry(JobSignal):
    """Run this job again: `after` seconds from now, or by the policy's backoff when not given. Spends a retry."""

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.after = after


class Snooze(JobSignal):
    """Not now: run this job again in `seconds`. Does not spend a retry."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message)
        self.seconds = seconds
        self.message = message


class Fail(JobSignal):
    """Give up for good, whatever retries are left."""

    def __init__(self, message: str = "", *, code: str | int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Cancel(JobSignal):
    """The job is not needed any more."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
