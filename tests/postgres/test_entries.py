"""The events of a write stand together in the log, and are read as if each stood for itself."""

from __future__ import annotations

from mulligan.core.events import EVENT_LOG_MAX, Event
from mulligan.stores.postgres import PostgresStore
from mulligan.stores.postgres.entries import ENTRY_MAX
from mulligan.stores.postgres.eventlog import READ
from tests.builders import all_events, claim, new_job, retry
from tests.postgres.conftest import Raw


async def test_pages_begin_and_end_within_entries(store: PostgresStore, raw: Raw) -> None:
    """Whatever the size of a page, a reader that goes on from the last event it saw gets each of them once, in order."""
    many = 2 * ENTRY_MAX + 50
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1, queue=str(number)) for number in range(many)])
    await store.record_events([Event(kind="QUEUE_RESUMED", at_us=2, queue="last")])
    assert raw.rows("SELECT count(*) FROM {s}.events") == [(4,)]
    for page in (1, 7, ENTRY_MAX, 1_000):
        found: list[Event] = []
        while events := await store.read_events(found[-1].seq if found else 0, page):
            assert len(events) <= page
            found += events
        assert [event.queue for event in found] == [*(str(number) for number in range(many)), "last"]
        assert [event.seq for event in found] == list(range(1, many + 2))


async def test_what_is_beyond_the_bound_is_not_read(store: PostgresStore) -> None:
    """The oldest entry may hold more than the log keeps; its reader begins at the bound."""
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1, queue=str(number)) for number in range(EVENT_LOG_MAX + 30)])
    first, *_ = await store.read_events(0, 10)
    assert (first.seq, first.queue) == (31, "30")


async def test_times_are_those_of_the_write(store: PostgresStore) -> None:
    """Events of failures that are tried again leave the times open; they are read with the time of their change, and of the retry."""
    await store.insert([new_job() for _ in range(ENTRY_MAX)])
    held = (await claim(store)).jobs
    verdicts = await store.settle([retry(job, delay_s=number) for number, job in enumerate(held)])
    told = await all_events(store)
    assert [event.kind for event in told] == ["FAILED", "RETRY_SCHEDULED"] * len(held)
    assert {event.at_us for event in told} == {verdict.at_us for verdict in verdicts}
    runs_at = {event.job_id: event.detail["run_at_us"] for event in told if event.kind == "RETRY_SCHEDULED"}
    assert runs_at == {verdict.job_id: verdict.run_at_us for verdict in verdicts}


async def test_a_damaged_entry_does_not_end_a_reader(store: PostgresStore, raw: Raw) -> None:
    """Pages shorter than what was lost are not empty, which would tell a reader that nothing follows."""
    await store.record_events([Event(kind="QUEUE_PAUSED", at_us=1) for _ in range(3 * ENTRY_MAX)])
    raw.run("UPDATE {s}.events SET bodies = 'x' WHERE seq <= %s", (2 * ENTRY_MAX,))
    assert [event.seq for event in await store.read_events(0, 2)] == [2 * ENTRY_MAX + 1, 2 * ENTRY_MAX + 2]
    raw.run("UPDATE {s}.events SET bodies = 'x'")
    assert await store.read_events(0, 2) == []


async def test_a_full_log_is_not_gone_through(store: PostgresStore, raw: Raw) -> None:
    """Neither adding to a log of very many entries nor reading its end looks at them all, whatever the statistics say."""
    fill = "INSERT INTO {s}.events (seq, many, at_us, bodies) SELECT g, 1, NULL, '[]' FROM generate_series(1, %s) g"
    raw.run(fill, (EVENT_LOG_MAX,))
    raw.run("ANALYZE {s}.events")
    raw.run("DELETE FROM {s}.events")
    raw.run("ANALYZE {s}.events")  # from now on these pages count as empty
    raw.run(fill, (EVENT_LOG_MAX,))
    read = READ.replace("$1", str(EVENT_LOG_MAX - 5)).replace("$2", "100").replace("$3", str(EVENT_LOG_MAX))
    assert looked_at(raw, f"SELECT {{s}}.add_events(0, ARRAY['[]'], ARRAY[1]::bigint[], {EVENT_LOG_MAX})") <= 5
    assert looked_at(raw, read) <= 15


def looked_at(raw: Raw, statement: str) -> int:
    """How many entries a statement has looked at. The server also counts what this connection did a moment before."""
    counted = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = '{s}.events'::regclass"
    with raw.connection.transaction():
        [[before]] = raw.rows(counted)
        raw.run(statement)
        [[after]] = raw.rows(counted)
    return int(after - before)
