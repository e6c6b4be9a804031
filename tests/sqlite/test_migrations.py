from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.errors import SchemaMismatch
from mulligan.core.events import Event
from mulligan.core.job import HistoryRecord
from mulligan.stores.sqlite import Migration, SQLiteStore, migration_sql, pending_migrations
from mulligan.stores.sqlite.migrations import migrate, missing, schema_version
from mulligan.stores.sqlite.rows import to_json
from mulligan.stores.sqlite.schema import MIGRATIONS
from tests.builders import done, get, grip, new_job, put_and_claim, retry
from tests.sqlite.children import child

SCHEMA = "SELECT type, name, sql FROM sqlite_master WHERE name LIKE 'mulligan_%' ORDER BY name"


def next_step(*statements: str) -> tuple[Migration, ...]:
    """The known migrations and one more."""
    return (*MIGRATIONS, Migration(number=MIGRATIONS[-1].number + 1, name="more", statements=statements))


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


async def test_new_file_gets_the_whole_schema(path: Path) -> None:
    """Opening a path without a file makes one, with every migration applied and noted."""
    assert pending_migrations(path) == list(MIGRATIONS)
    assert not path.exists()
    store = SQLiteStore(path)
    await store.open()
    assert (await store.describe())["schema_version"] == MIGRATIONS[-1].number
    await store.close()
    assert pending_migrations(path) == []


async def test_file_of_the_application_keeps_its_own_tables(path: Path, clock: ManualClock) -> None:
    """A database that already holds other tables gets ours beside them, and loses nothing."""
    own = connect(path)
    own.execute("CREATE TABLE jobs (mine TEXT)")
    own.execute("INSERT INTO jobs VALUES ('kept')")
    own.close()
    assert pending_migrations(path) == list(MIGRATIONS)
    store = SQLiteStore(path, clock=clock)
    await store.open()
    await store.insert([new_job()])
    await store.close()
    own = connect(path)
    assert own.execute("SELECT mine FROM jobs").fetchall() == [("kept",)]
    own.close()


def test_older_file_is_brought_up_to_date(path: Path) -> None:
    """Only the steps that are missing are applied, and the rows of the older schema stay."""
    connection = connect(path)
    assert migrate(connection, 1) == list(MIGRATIONS)
    connection.execute("INSERT INTO mulligan_queues VALUES ('q', 1, 'why', 'me', 7)")
    newer = next_step("ALTER TABLE mulligan_queues ADD COLUMN more INTEGER")
    assert migrate(connection, 2, newer) == [newer[-1]]
    assert migrate(connection, 3, newer) == []
    assert connection.execute("SELECT queue, more FROM mulligan_queues").fetchall() == [("q", None)]
    assert connection.execute("SELECT number, applied_at_us FROM mulligan_migrations").fetchall() == [
        (step.number, 1 + (step is newer[-1])) for step in newer
    ]
    connection.close()


def test_step_that_fails_leaves_nothing_behind(path: Path) -> None:
    """All steps are one transaction: if one of them fails, the file is as it was."""
    connection = connect(path)
    migrate(connection, 1)
    before = connection.execute(SCHEMA).fetchall()
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, 2, next_step("CREATE TABLE mulligan_more (x)", "CREATE TABLE mulligan_more (x)"))
    assert connection.execute(SCHEMA).fetchall() == before
    assert schema_version(connection) == MIGRATIONS[-1].number
    connection.close()


async def test_newer_file_is_refused(path: Path) -> None:
    """A file that a newer version migrated is not touched, and the error says to upgrade."""
    connection = connect(path)
    migrate(connection, 1, next_step("CREATE TABLE mulligan_more (x)"))
    connection.close()
    with pytest.raises(SchemaMismatch, match="upgrade mulligan"):
        await SQLiteStore(path).open()
    with pytest.raises(SchemaMismatch, match="upgrade mulligan"):
        pending_migrations(path)


async def test_edited_migration_is_noticed(path: Path) -> None:
    """A file whose journal has another checksum than the code is refused, and the error names the step."""
    connection = connect(path)
    migrate(connection, 1)
    connection.execute("UPDATE mulligan_migrations SET checksum = 'other' WHERE number = 1")
    connection.close()
    with pytest.raises(SchemaMismatch, match="migration 1"):
        await SQLiteStore(path).open()


def test_checksum_sees_words_but_not_indentation() -> None:
    """Reformatting a migration is harmless, changing it is not."""
    step = Migration(number=1, name="x", statements=("CREATE TABLE a\n  (x)",))
    same = Migration(number=1, name="x", statements=("CREATE TABLE a (x)",))
    other = Migration(number=1, name="x", statements=("CREATE TABLE a (y)",))
    assert step.checksum == same.checksum != other.checksum


def test_released_migrations_are_never_edited() -> None:
    """The first schema is out in the world: whoever changes it must add a step instead."""
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert MIGRATIONS[0].checksum == "414aec580015e73fae5da71c11997fb0f00324a63d093f84c575b3bb52888e98"


async def test_a_file_without_receipts_gets_them(path: Path, clock: ManualClock) -> None:
    """A job that was held when the file was brought up to date has its steps remembered, and removed with it."""
    connection = connect(path)
    migrate(connection, 1, MIGRATIONS[:1])
    connection.close()
    assert pending_migrations(path) == list(MIGRATIONS[1:])
    store = SQLiteStore(path, clock=clock)
    await store.open()
    job = await put_and_claim(store)
    assert await store.put_receipt(grip(job), "charge", "42") is not None
    await store.settle([done(job)])
    assert await store.prune("done", 0, 10) == 1
    assert await store._read(lambda t: t.row("SELECT count(*) FROM mulligan_receipts")) == (0,)
    await store.close()


async def test_a_log_of_single_events_is_read_on(path: Path, clock: ManualClock) -> None:
    """The events and records of a file from before there were entries are there after it was brought up to date, and new ones follow."""
    connection = connect(path)
    migrate(connection, 1, MIGRATIONS[:2])
    event = Event(kind="WORKER_STARTED", at_us=5, detail={"text": 'quo"te ä', "share": 0.1})
    for seq in (7, 8):
        connection.execute("INSERT INTO mulligan_events (seq, body) VALUES (?, ?)", (seq, to_json(event)))
    connection.close()
    store = SQLiteStore(path, clock=clock)
    await store.open()
    await store.set_queue("q", paused=True)
    events = await store.read_events(0, 10)
    assert events[:2] == [replace(event, seq=7), replace(event, seq=8)]
    assert [(event.kind, event.seq) for event in events[2:]] == [("QUEUE_PAUSED", 9)]
    await store.close()


async def test_a_process_of_the_version_before_goes_on_writing(path: Path, clock: ManualClock) -> None:
    """It knows of no entries and writes single events, before and after the others bring the file up to date; both are read in order."""
    old = connect(path)
    migrate(old, 1, MIGRATIONS[:2])
    store = SQLiteStore(path, clock=clock)
    await store.open()
    for number in range(2):
        await store.record_events([Event(kind="QUEUE_PAUSED", at_us=number), Event(kind="QUEUE_RESUMED", at_us=number)])
        old.execute("INSERT INTO mulligan_events (body) VALUES (?)", (to_json(Event(kind="WORKER_STARTED", at_us=number)),))
    old.close()
    found = await store.read_events(0, 10)
    assert [(event.kind, event.seq) for event in found] == [
        *(("QUEUE_PAUSED", 1), ("QUEUE_RESUMED", 2), ("WORKER_STARTED", 3)),
        *(("QUEUE_PAUSED", 4), ("QUEUE_RESUMED", 5), ("WORKER_STARTED", 6)),
    ]
    assert await store.read_events(2, 2) == found[2:4]
    await store.close()


@pytest.mark.parametrize(
    "own",
    [
        ("CREATE VIEW own AS SELECT seq, body FROM mulligan_events",),
        ("CREATE TABLE gone (a)", "CREATE VIEW own AS SELECT a FROM gone", "DROP TABLE gone"),
        ("CREATE TABLE t (a)", "CREATE TRIGGER own AFTER INSERT ON t BEGIN INSERT INTO gone VALUES (1); END"),
    ],
)
def test_views_and_triggers_of_the_application_are_in_nobodys_way(path: Path, own: tuple[str, ...]) -> None:
    """Not even those that lead nowhere, and those on our tables stay as they are."""
    connection = connect(path)
    migrate(connection, 1, MIGRATIONS[:2])
    for statement in own:
        connection.execute(statement)
    known = "SELECT sql FROM sqlite_master WHERE name = 'own'"
    before = connection.execute(known).fetchall()
    migrate(connection, 1)
    assert connection.execute(known).fetchall() == before
    assert missing(connection) == []
    connection.close()


async def test_a_record_that_says_itself_when_it_ended(path: Path, clock: ManualClock) -> None:
    """So older files have it, and copied jobs."""
    store = SQLiteStore(path, clock=clock)
    await store.open()
    job = await put_and_claim(store)
    await store.settle([retry(job)])
    record = to_json(HistoryRecord(generation=1, fence=1, attempt=1, outcome="failure", ended_at_us=77))
    await store._write(lambda t: t.run("UPDATE mulligan_history SET ended_at_us = NULL, record = ?", (record,)))
    assert [record.ended_at_us for record in (await get(store, job.id)).history] == [77]
    await store.close()


def test_script_gives_the_same_schema(path: Path, tmp_path: Path) -> None:
    """What `migrate --sql` prints is what the store applies."""
    connection = connect(path)
    migrate(connection, 1)
    script = sqlite3.connect(tmp_path / "script.db")
    script.executescript(migration_sql())

    def shape(of: sqlite3.Connection) -> list[tuple[str, ...]]:
        return [(kind, name, re.sub(r"\s+", " ", sql or "").strip()) for kind, name, sql in of.execute(SCHEMA)]

    assert shape(script) == shape(connection)
    script.close()
    connection.close()


OPEN_AT_ONCE = """
store = SQLiteStore(sys.argv[1])
say("ready")
wait()
async def main():
    await store.open()
    [answer] = await store.insert([builders.new_job()])
    await store.close()
    return answer.created
say(asyncio.run(main()))
"""


def test_several_processes_open_a_new_file_at_once(path: Path) -> None:
    """Four processes that create the same file at the same moment all succeed, and each step is applied once."""
    with child(OPEN_AT_ONCE, path) as a, child(OPEN_AT_ONCE, path) as b, child(OPEN_AT_ONCE, path) as c, child(OPEN_AT_ONCE, path) as d:
        for one in (a, b, c, d):
            assert one.hear() == "ready"
        for one in (a, b, c, d):
            one.go_on()
        assert [one.hear() for one in (a, b, c, d)] == [True] * 4
    connection = connect(path)
    assert missing(connection) == []
    assert connection.execute("SELECT count(*) FROM mulligan_jobs").fetchone() == (4,)
    connection.close()
