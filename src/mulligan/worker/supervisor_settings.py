"""The settings of a supervisor, checked when made."""

from __future__ import annotations

import msgspec

from mulligan.core.errors import BadSetting, shown

DAY_S = 86_400.0


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many children there are, and when one of them is ended or replaced."""

    processes: int = 1
    kill_after: float = 10.0  # seconds a handler may go on after it was told to stop, before its process is ended
    max_jobs: int | None = None  # a child that has finished so many is replaced
    max_memory: int | None = None  # so is one whose resident size is above so many MiB

    def __post_init__(self) -> None:
        _check("processes", self.processes, 1, 256)
        _check("kill_after", self.kill_after, 0.1, DAY_S)
        if self.max_jobs is not None:
            _check("max_jobs", self.max_jobs, 1, 10**12)
        if self.max_memory is not None:
            _check("max_memory", self.max_memory, 1, 10**9)


def _check(name: str, value: float, low: float, high: float) -> None:
    kinds = (int, float) if name == "kill_after" else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise BadSetting(f"supervisor setting {name} must be between {low:g} and {high:g}, not {shown(value)}")
