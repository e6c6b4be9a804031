"""The stages of a job's way through a worker, and which of them a stack of calls belongs to.

A stack is looked at from its innermost call outwards, and the first call that has a stage decides. Calls of a driver, and of the small
helpers that every call of a store goes through, have none: they belong to whoever called them, and are told apart as the driver's part.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import FrameType
from typing import NamedTuple

CLAIM, SETTLE, ANSWERS = "claim", "settle", "answers"
TRANSACTION, LOOP, CHORES, OTHER, UNPLACED = "transaction", "event loop", "chores", "other", "unplaced"

# In the order of a job's way; the table has this order.
STAGES: dict[str, str] = {
    "plan": "how to split the free slots over lanes and queues, and in which order the claimed jobs start",
    CLAIM: "the store's claim: parameters, rows into jobs",
    "accept": "a run for each claimed job, into the hands of the slots",
    "dispatch": "a slot takes the job: task found, lease, limits and age checked, counted as started",
    "handler": "arguments decoded, the handler called in a context of its own, and the handler itself",
    "decide": "from the end of the handler to the change to be written",
    "commit": "batches formed, verdicts handed back, jobs let go of",
    SETTLE: "the store's settle: changes into parameters, answers into verdicts",
    "events": "rows for the ring and the meters, and events for those who listen",
    TRANSACTION: "SQLite begins and commits, and what its thread does for each group of calls",
    ANSWERS: "the driver reads and decodes answers on the loop, before anybody is called",
    LOOP: "asyncio: callbacks, wake-ups, crossings between threads",
    CHORES: "sweeper, keeper, scheduler, pruner, board, and the worker's start and stop",
    OTHER: "what belongs to none of these",
    UNPLACED: "the last moment before a thread waits, and the waiting itself (sampler.py)",
}

# The end of a file's path, perhaps with functions of it, and its stage. The first that fits counts.
_RULES: tuple[tuple[str, frozenset[str], str], ...] = (
    ("worker/executor.py", frozenset({"accept"}), "accept"),
    ("worker/run.py", frozenset({"__init__", "add"}), "accept"),
    ("worker/run.py", frozenset({"drop"}), "commit"),
    ("worker/run.py", frozenset({"begin", "end"}), "handler"),
    ("worker/run.py", frozenset(), "dispatch"),
    ("worker/executor.py", frozenset({"_decide", "_after_return", "_after_error", "_classify", "_policy", "_holds_slot"}), "decide"),
    ("worker/executor.py", frozenset({"settled"}), "commit"),
    ("worker/executor.py", frozenset(), "dispatch"),
    ("worker/conditions.py", frozenset({"ended"}), "decide"),
    ("worker/conditions.py", frozenset({"learn"}), "plan"),
    ("worker/registry.py", frozenset(), "dispatch"),
    ("observe/flow.py", frozenset({"started"}), "dispatch"),
    ("observe/flow.py", frozenset({"ended"}), "decide"),
    ("worker/perform.py", frozenset(), "handler"),
    ("core/codec.py", frozenset({"decode_payload"}), "handler"),
    ("core/codec.py", frozenset({"encode_result"}), "decide"),
    ("profile/child.py", frozenset({"noop", "storm", "through"}), "handler"),
    ("profile/child.py", frozenset({"hear"}), "events"),
    ("policy/planner.py", frozenset(), "plan"),
    ("policy/lanes.py", frozenset(), "plan"),
    *(
        (f"policy/{name}.py", frozenset(), "decide")
        for name in ("decide", "classify", "error_info", "backoff", "jitter", "retry", "retry_after")
    ),
    ("worker/sensors.py", frozenset({"signals"}), "decide"),
    ("worker/policies.py", frozenset(), "decide"),
    ("observe/bus.py", frozenset(), "events"),
    ("observe/metrics.py", frozenset(), "events"),
    ("core/events.py", frozenset(), "events"),
    ("worker/fetcher.py", frozenset({"_tell_claimed"}), "events"),
    ("worker/sweeper.py", frozenset(), CHORES),
    ("worker/keeper.py", frozenset(), CHORES),
    ("worker/scheduler.py", frozenset(), CHORES),
    ("worker/pruner.py", frozenset(), CHORES),
    ("worker/board.py", frozenset(), CHORES),
    ("worker/committer.py", frozenset(), "commit"),
    ("worker/fetcher.py", frozenset(), "plan"),
    ("/worker/worker.py", frozenset({"_on_progress", "_on_written"}), "commit"),
    ("/worker/worker.py", frozenset(), CHORES),
)
# Files of a store that serve one call only. The rest of a store serves both, and whoever called it decides.
_OF_STORES = {
    "claim.py": CLAIM,
    "take.py": CLAIM,
    "taking.py": CLAIM,
    "look.py": CLAIM,
    "floors.py": CLAIM,
    "careful.py": CLAIM,
    "settle.py": SETTLE,
    "at_once.py": SETTLE,
    "write.py": SETTLE,
    "judge.py": SETTLE,
    "leases.py": CHORES,
    "stats.py": CHORES,
    "notes.py": CHORES,
    "settings.py": CHORES,
    "wake.py": CHORES,
    "writer.py": TRANSACTION,
}
_OF_CALLS = {"claim": CLAIM, "settle": SETTLE}  # functions of the files that serve both
_DRIVER, _READS, _WAITS = "(driver)", "(reads)", "(waits)"  # what a call tells that has no stage
_WAITING = {("selectors.py", "select"), ("hop.py", "_round"), ("writer.py", "_round"), ("threading.py", "wait"), ("thread.py", "_worker")}
_DRIVERS = ("/asyncpg/", "/redis/", "/hiredis/", "/pymongo/", "/bson/", "/gridfs/")


class Spot(NamedTuple):
    """Where time was spent: a stage, and whether inside a driver (or SQLite) on its behalf."""

    stage: str
    in_driver: bool


def spot_of(calls: Iterable[tuple[str, str]]) -> Spot:
    """The spot of a stack: files and functions, the innermost call first."""
    in_driver = is_reading = False
    for depth, (file, function) in enumerate(calls):
        meaning = _meaning_of(file, function)
        if meaning == _DRIVER:
            in_driver = True
        elif meaning == _READS:
            is_reading = True
        elif meaning == _WAITS:
            if depth == 0:
                return Spot(UNPLACED, in_driver=False)
        elif meaning is not None:
            return Spot(meaning, in_driver or meaning == TRANSACTION)
    if is_reading:
        return Spot(ANSWERS, in_driver=True)
    return Spot(OTHER if in_driver else LOOP, in_driver)


@cache
def _meaning_of(file: str, function: str) -> str | None:
    """The stage of a call, or what else it tells; None: whoever called it decides."""
    folder, _, name = file.rpartition("/")
    if (name, function) in _WAITING:
        return _WAITS
    if "/mulligan/stores/" in file:
        if name == "hop.py" and function in ("run", "row", "rows"):
            return _DRIVER
        return _OF_STORES.get(name) or _OF_CALLS.get(function)
    if any(driver in file for driver in _DRIVERS):
        return _DRIVER
    if folder.endswith("/asyncio"):
        return _READS if function.startswith("_read_ready") else None
    return next((stage for ending, own, stage in _RULES if file.endswith(ending) and (not own or function in own)), None)


def calls_of(frame: FrameType | None) -> Iterable[tuple[str, str]]:
    """The files and functions of a stack, the innermost call first."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_code.co_name
        frame = frame.f_back
