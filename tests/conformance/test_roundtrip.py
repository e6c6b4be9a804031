from __future__ import annotations

from datetime import datetime, timezone

import pytest

from mulligan.core.clock import SPAN_MAX_S, TIME_MAX_US, TIME_MIN_US, ManualClock, datetime_to_us
from mulligan.core.codec import PAYLOAD_BYTES_MAX, decode_payload, encode_payload
from mulligan.core.contract import Store
from mulligan.core.job import ErrorInfo, HistoryRecord
from tests.builders import ask, claim, claim_one, done, failed, get, new_job, put_and_claim, retry, turn_to, us

LAST_US = datetime_to_us(datetime(2199, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc), "last")

TEXTS = [
    "",
    "plain",
    "line\nbreak\r\n\ttab",
    "quotes ' \" ` and \\ backslash",
    "emoji 😀👩‍👩‍👧 and ünïcödé and 漢字 and \u202ertl",
    "\u2028\u2029\ufeff\uffff",
    "null NULL None 0 1e5",
    "'; DROP TABLE jobs; --",
    "$where a.b __proto__ {} [] %s ? :name",
]


@pytest.mark.parametrize("time_us", [TIME_MIN_US, 1, LAST_US, 2**53 + 1 - 2_000_000_000_000_000])
async def test_eta_round_trips_exactly(store: Store, clock: ManualClock, time_us: int) -> None:
    """Times from the first to the last allowed microsecond come back as given, also as datetimes."""
    assert TIME_MIN_US <= time_us < TIME_MAX_US
    job = new_job(eta_us=time_us, tick_us=time_us, schedule="s")
    await store.insert([job])
    row = await get(store, job.id)
    assert (row.run_at_us, row.due_first_us, row.tick_us) == (time_us,) * 3
    assert row.run_at is not None
    assert datetime_to_us(row.run_at, "run_at") == time_us


@pytest.mark.parametrize("now_us", [TIME_MIN_US, LAST_US])
async def test_a_whole_life_at_the_edges_of_time(store: Store, clock: ManualClock, now_us: int) -> None:
    """A store whose clock stands at the first or last microsecond writes its times exactly."""
    turn_to(clock, now_us)
    assert await store.now_us() == now_us
    job = await put_and_claim(store, lease_s=30)
    assert (job.created_at_us, job.updated_at_us, job.lease_expires_at_us, job.read_at_us) == (now_us, now_us, now_us + us(30), now_us)
    await store.settle([retry(job)])
    row = await get(store, job.id)
    assert (row.run_at_us, row.history[0].ended_at_us) == (now_us, now_us)
    await store.settle([done(await claim_one(store))])
    assert (await get(store, job.id)).finished_at_us == now_us


async def test_due_judged_at_the_edges_of_time(store: Store, clock: ManualClock) -> None:
    """A job of 1970 is due, one of 2199 waits, to the microsecond."""
    first, last = new_job(eta_us=TIME_MIN_US), new_job(eta_us=LAST_US)
    await store.insert([first, last])
    assert (await claim_one(store)).id == first.id
    turn_to(clock, LAST_US - 1)
    waiting = await claim(store)
    assert (waiting.jobs, waiting.next_due_us) == ([], LAST_US)
    turn_to(clock, LAST_US)
    assert (await claim_one(store)).id == last.id


async def test_longest_spans_round_trip(store: Store, clock: ManualClock) -> None:
    """The longest delay, time-out, age and lease fit, and their sums with the present time too."""
    span = us(SPAN_MAX_S)
    job = new_job(delay_s=SPAN_MAX_S, timeout_us=span, max_age_us=span)
    await store.insert([job])
    row = await get(store, job.id)
    assert (row.run_at_us, row.timeout_us, row.max_age_us) == (clock.now_us() + span, span, span)
    held = await put_and_claim(store, lease_s=SPAN_MAX_S)
    assert held.lease_expires_at_us == clock.now_us() + span


@pytest.mark.parametrize(
    "payload",
    [
        encode_payload([], {}),
        encode_payload(["nul: \0", "\x1b[31m", 'quote " and \\'], {"a.b": 1, "$where": "$ne", "": None, "__proto__": {}}),
        encode_payload(["😀" * 50, "漢字", "\u2028\ufeff"], {"ключ": "значение"}),
        encode_payload([2**63 - 1, -(2**63), 0.1, 1e308, -0.0, 5e-324, True, None], {}),
        '{ "kwargs": {"b":1, "a":1e400, "a":2},  "args" : [1.0, 1, 100000000000000000000] }',
        "not json at all",
    ],
)
async def test_payload_text_is_opaque(store: Store, payload: str) -> None:
    """The payload is carried as the very text it came as: escapes, key order, blanks, duplicates and numbers untouched."""
    job = new_job(payload=payload, policy=payload)
    await store.insert([job])
    claimed = await claim_one(store)
    assert (claimed.payload, claimed.policy) == (payload, payload)
    assert (await get(store, job.id)).payload == payload


async def test_escaped_nul_comes_back_as_nul(store: Store) -> None:
    """A NUL in an argument is stored escaped and decoded again."""
    await store.insert([new_job(payload=encode_payload(["a\0b"], {}))])
    job = await claim_one(store)
    assert "\0" not in job.payload
    assert job.args == ["a\0b"]


async def test_the_largest_payload_and_result_round_trip(store: Store) -> None:
    """One mebibyte of payload, and of result, is within the limit and comes back whole."""
    frame = len(encode_payload([""], {}))
    payload = encode_payload(["é" * ((PAYLOAD_BYTES_MAX - frame) // 2)], {})
    assert PAYLOAD_BYTES_MAX - 1 <= len(payload.encode()) <= PAYLOAD_BYTES_MAX
    job = new_job(payload=payload)
    await store.insert([job])
    result = '"' + "😀" * ((PAYLOAD_BYTES_MAX - 2) // 4) + '"'
    await store.settle([done(await claim_one(store), result)])
    row = await get(store, job.id)
    assert decode_payload(row.payload).args == decode_payload(payload).args
    assert row.result_json == result


@pytest.mark.parametrize("text", TEXTS[1:])
async def test_names_keys_and_tags_round_trip(store: Store, text: str) -> None:
    """Every free text of a job comes back as given."""
    job = new_job(unique_key=text, concurrency_key=text, fair_key=text, trace=text, tags=(text, "second", text), schedule=text)
    await store.insert([job])
    row = await get(store, job.id)
    assert (row.unique_key, row.concurrency_key, row.fair_key, row.trace, row.schedule) == (text,) * 5
    assert row.tags == (text, "second", text)
    [answer] = await store.insert([new_job(unique_key=text)])
    assert answer.id == job.id


async def test_absent_fields_stay_absent(store: Store) -> None:
    """None and the empty tuple are not turned into something else."""
    job = new_job(max_retries=None)
    await store.insert([job])
    row = await get(store, job.id)
    assert (row.max_retries, row.timeout_us, row.max_age_us, row.unique_key, row.concurrency_key) == (None,) * 5
    assert (row.fair_key, row.trace, row.schedule, row.tick_us, row.tags) == (None, None, None, None, ())


async def test_zero_is_not_absent(store: Store) -> None:
    """Zero limits and times are kept as zeros."""
    job = new_job(max_retries=0, timeout_us=0, max_age_us=0, tick_us=0, eta_us=0)
    await store.insert([job])
    row = await get(store, job.id)
    assert (row.max_retries, row.timeout_us, row.max_age_us, row.tick_us, row.run_at_us) == (0,) * 5


async def test_key_texts_are_told_apart_exactly(store: Store) -> None:
    """Keys that differ in case, blanks or Unicode form are different keys, and no number equals a text."""
    keys = ["k", "K", "k ", " k", "é", "e\u0301", "1", "1.0", "01"]
    answers = await store.insert([new_job(unique_key=key) for key in keys])
    assert all(answer.created for answer in answers)


@pytest.mark.parametrize(
    "result_json", [None, "null", '""', "0", "false", "[]", "1.0", "100000000000000000000", '{"b":1,"a":2}', '"\\u0000"']
)
async def test_result_text_round_trips(store: Store, result_json: str | None) -> None:
    """A result is carried as the very text it came as; no text is no text."""
    job = await put_and_claim(store)
    await store.settle([done(job, result_json)])
    assert (await get(store, job.id)).result_json == result_json


@pytest.mark.parametrize("text", TEXTS)
async def test_errors_and_history_round_trip(store: Store, text: str) -> None:
    """Every field of an error and of a history record comes back as given."""
    error = ErrorInfo(type=text, message=text * 50, code=text, traceback=text, fingerprint=text, at_us=LAST_US)
    job = await put_and_claim(store)
    record = HistoryRecord(
        generation=3,
        fence=2**40,
        attempt=7,
        outcome="failure",
        worker=text,
        started_at_us=0,
        error=error,
        delay_us=us(SPAN_MAX_S),
        why=text,
    )
    await store.settle([failed(job, error=error, record=record, worker=text, why=text)])
    row = await get(store, job.id)
    assert row.last_error == error
    [kept] = row.history
    assert (kept.generation, kept.fence, kept.attempt, kept.outcome, kept.worker) == (3, 2**40, 7, "failure", text)
    assert (kept.started_at_us, kept.ended_at_us, kept.error, kept.delay_us, kept.why) == (
        0,
        row.finished_at_us,
        error,
        us(SPAN_MAX_S),
        text,
    )


async def test_bare_error_round_trips(store: Store) -> None:
    """An error with nothing but type and message keeps its other fields absent."""
    error = ErrorInfo(type="ValueError", message="")
    job = await put_and_claim(store)
    await store.settle([failed(job, error=error, record=None)])
    row = await get(store, job.id)
    assert (row.last_error, row.history) == (error, ())


async def test_success_clears_the_last_error(store: Store) -> None:
    """A change carries the full field set: done leaves no error of an earlier attempt behind (A36)."""
    await store.settle([retry(await put_and_claim(store))])
    job = await claim_one(store)
    assert job.last_error is not None
    await store.settle([done(job)])
    assert (await get(store, job.id)).last_error is None


async def test_owner_claim_and_settle_ids_are_free_texts(store: Store) -> None:
    """Ids made by callers are carried as given."""
    text = "host-ä😀:4711/'\" $ {}"
    await store.insert([new_job()])
    [job] = (await store.claim(text, text, [ask()], 1, us(30))).jobs
    assert (job.claim_id, job.lease_owner) == (text, text)
    assert [again.id for again in (await store.claim(text, text, [ask()], 1, us(30))).jobs] == [job.id]
    await store.settle([retry(job, settle_id=text)])
    assert (await get(store, job.id)).settle_id == text
