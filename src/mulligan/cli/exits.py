"""Exit codes. Programs depend on them; docs/reference/commands.md lists them with their meaning."""

from __future__ import annotations

from mulligan.core.errors import JobNotFound, MulliganError, StoreError, UnknownQueue, UsageError

OK = 0  # it was done
NO = 1  # the answer is no, or a check failed
USAGE = 2  # the command cannot be carried out as typed; click uses the same number
NOT_FOUND = 3  # no such job or queue
STORE = 4  # the store does not answer, is missing, or has another schema
INTERRUPTED = 130  # Ctrl-C, as shells count it


def exit_code_of(error: MulliganError) -> int:
    """The exit code an error of ours ends a command with."""
    if isinstance(error, (JobNotFound, UnknownQueue)):
        return NOT_FOUND
    if isinstance(error, StoreError):
        return STORE
    if isinstance(error, UsageError):
        return USAGE
    return NO
