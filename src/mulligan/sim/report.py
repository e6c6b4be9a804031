"""From a call of the store to what the watch makes of it: one line for each call that can change or tell something of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from mulligan.core.schedule import Schedule
from mulligan.sim.claims import saw_claim, saw_renew
from mulligan.sim.filing import saw_cancel, saw_fire, saw_get, saw_insert, saw_overdue, saw_prune, saw_restore
from mulligan.sim.process import Process
from mulligan.sim.settling import saw_settle
from mulligan.sim.watch import Watch


class Call(NamedTuple):
    """A call that the store has carried out, with its answer and the process that made it (None: a producer or an operator)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Any
    process: Process | None


def _set_queue(watch: Watch, call: Call) -> None:
    queue, is_paused = call.args[0], call.kwargs["paused"]
    (watch.paused.add if is_paused else watch.paused.discard)(queue)
    watch.saw("set_queue", f"{queue} {is_paused}")


def _put_schedule(watch: Watch, call: Call) -> None:
    stored: Schedule = call.answer
    known = watch.schedules.get(stored.name)
    moved = known is not None and known.interval_us == stored.interval_us and known.next_tick_us != stored.next_tick_us
    watch.check("S18", f"putting {stored.name} again moves it" if moved else "")
    watch.schedules[stored.name] = stored
    watch.saw("put_schedule", stored.name)


def _pause_schedule(watch: Watch, call: Call) -> None:
    name, is_paused = call.args
    if name in watch.schedules:
        watch.schedules[name] = replace(watch.schedules[name], paused=is_paused)
    watch.saw("set_schedule_paused", f"{name} {is_paused}")


def _remove_schedule(watch: Watch, call: Call) -> None:
    watch.schedules.pop(call.args[0], None)
    watch.saw("remove_schedule", call.args[0])


# Each is told the arguments, the answer and who asked.
_JOBS: dict[str, Callable[..., None]] = {
    "claim": saw_claim,
    "renew": saw_renew,
    "settle": saw_settle,
    "insert": saw_insert,
    "restore": saw_restore,
    "request_cancel": saw_cancel,
    "fire": saw_fire,
    "get": saw_get,
    "overdue": saw_overdue,
    "prune": saw_prune,
}
_REST: dict[str, Callable[[Watch, Call], None]] = {
    "set_queue": _set_queue,
    "put_schedule": _put_schedule,
    "set_schedule_paused": _pause_schedule,
    "remove_schedule": _remove_schedule,
}


def report(watch: Watch, name: str, call: Call) -> None:
    """Tells the watch of one call that was carried out."""
    if (about_jobs := _JOBS.get(name)) is not None:
        about_jobs(watch, *call.args, answer=call.answer, process=call.process)
    elif (about_rest := _REST.get(name)) is not None:
        about_rest(watch, call)
    else:
        watch.events[name] += 1
