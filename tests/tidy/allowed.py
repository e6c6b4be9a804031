"""The exceptions to the house rules, each with its reason. An entry that is no longer needed fails a test, so the lists only shrink."""

from __future__ import annotations

# The one module that reads the wall clock and makes random generators.
TIME_AND_CHANCE = {"src/mulligan/core/clock.py"}

# What nothing in the package imports, and why it is there all the same.
ENTRY_POINTS = {
    "mulligan": "what users import",
    "mulligan.__main__": "python -m mulligan",
    "mulligan.cli": "the mulligan command",
    "mulligan.sim": "the tests run the worker under virtual time; the simulator will",
    "mulligan.sim.virtual": "likewise",
    "mulligan.sim.arrivals": "benchmarks.storms and its tests play scenes with it; the simulator will",
    "mulligan.sim.chart": "likewise",
    "mulligan.sim.figures": "likewise",
    "mulligan.sim.play": "likewise",
    "mulligan.sim.service": "likewise",
}

# "file::function" -> why its SQL is put together from text. Values are always bound; only fixed parts of our own are pasted in.
COMPOSED_SQL = {
    "src/mulligan/stores/postgres/careful.py::<module>": "the columns of a job, as in claim.py",
    "src/mulligan/stores/postgres/claim.py::<module>": "the columns of a job are listed once, in rows.py",
    "src/mulligan/stores/postgres/find.py::<module>": "the columns of a job, as above",
    "src/mulligan/stores/postgres/find.py::find_sql": "the conditions of a filter, each from a fixed text",
    "src/mulligan/stores/postgres/leases.py::<module>": "the columns of a job, as above",
    "src/mulligan/stores/postgres/restore.py::<module>": "the columns of a job, as above, and their types",
    "src/mulligan/stores/sqlite/claim.py::<module>": "two statements share the text that finds due jobs",
    "src/mulligan/stores/sqlite/claim.py::_look_sql": "one column per ask of the claim, each from a fixed text",
    "src/mulligan/stores/sqlite/claim.py::_line_sql": "a line of one or two lanes, each from a fixed text",
    "src/mulligan/stores/sqlite/at_once.py::<module>": "the shape of a batch is written once, in bulk.py",
    "src/mulligan/stores/sqlite/find.py::_find_sql": "the conditions of a filter, each from a fixed text",
    "src/mulligan/stores/sqlite/history.py::<module>": "the shape of a batch, as above",
    "src/mulligan/stores/sqlite/insert.py::<module>": "the columns of a job are listed once, and the shape of a batch as above",
    "src/mulligan/stores/sqlite/limits.py::<module>": "the shape of a batch, as above",
    "src/mulligan/stores/sqlite/lines.py::<module>": "the shape of a batch, as above, and the text that finds the jobs of one place",
    "src/mulligan/stores/sqlite/ring.py::<module>": "likewise, and a statement that names the tenant of a group in several places",
    "src/mulligan/stores/postgres/migrations.py::_note_of": "a script has no parameters; number, name and checksum are our own",
    "src/mulligan/stores/sqlite/migrations.py::_note_of": "likewise",
    "src/mulligan/stores/sqlite/restore.py::<module>": "the columns of a job are listed once, and the shape of a batch as above",
    "src/mulligan/stores/sqlite/stats.py::<module>": "a window over the text that finds running jobs",
}

# "file::function" -> why a test sleeps on the wall clock.
SLEEPING_TESTS = {
    "tests/worker/test_leases.py::test_a_blocked_loop_keeps_its_lease.block": "blocking the event loop for three leases is what is tested",
    "tests/postgres/test_near.py::test_a_loop_that_was_held_up_does_not_take_an_answer_for_silence": "so is it here, past a deadline",
    "tests/benchpeers/small_queue.py::SmallQueue.work": "a queue that polls, in a process of its own; no test waits by it",
}
