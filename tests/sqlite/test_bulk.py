from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.errors import BadPayload, SchemaMismatch, StoreRejected, StoreUnavailable
from mulligan.core.job import first_row
from mulligan.stores.sqlite.at_once import _AGAIN_WIDTH, _row_again
from mulligan.stores.sqlite.bulk import ROWS, SIZES, portions, with_rows
from mulligan.stores.sqlite.faults import translated
from mulligan.stores.sqlite.writes import _WIDTH, row_of_write
from tests.builders import done, failed, new_job, release, retry

INSERT = f"INSERT INTO numbers SELECT column1, column2, ? FROM {ROWS} WHERE column1 IS NOT NULL".replace(", ?", "")


@given(st.integers(0, 1_300))
def test_portions_carry_every_row_once(count: int) -> None:
    """However many rows there are, each is carried exactly once and in order, by few statements of few sizes."""
    rows = [(place, -place) for place in range(count)]
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE numbers (a, b)")
    statements = list(portions(INSERT, 2, rows))
    assert sum(connection.execute(sql, params).rowcount for sql, params in statements) == count
    assert connection.execute("SELECT * FROM numbers ORDER BY rowid").fetchall() == rows
    connection.close()
    assert len(statements) <= count // SIZES[0] + 3 * len(SIZES)
    assert {sql for sql, _ in statements} <= {with_rows(INSERT, 2, size) for size in SIZES}


def test_padding_is_bounded() -> None:
    """A statement carries at most as many empty rows as full ones."""
    for count in range(1, 1_300):
        assert sum(len(params) for _, params in portions(INSERT, 1, [(1,)] * count)) <= 2 * count


def test_nothing_is_bound_that_the_driver_is_slow_with() -> None:
    """Where rows are filled up, NULL stands in their first column only; what settling writes is numbers and texts alone."""
    for _, params in portions(INSERT, 3, [(1, 2, 3)] * 5):
        assert {type(param) for column in (1, 2) for param in params[column::3]} == {int}
    job = first_row(new_job(), 1)
    for change in (retry(job), done(job), failed(job), release(job)):
        for requeued in (False, True):
            row = row_of_write(change, "processing", 1, change.status, None, requeued=requeued)
            assert {type(value) for value in row} == {int, str}
            assert len(row) == _WIDTH
        row = _row_again(change, "", 1)
        assert {type(value) for value in row} == {int, str}
        assert len((job.id, *row)) == _AGAIN_WIDTH


def test_what_stands_before_the_rows_is_in_every_statement() -> None:
    """Values that all rows share are bound once per statement."""
    assert all(params[:2] == ["x", "y"] for _, params in portions(INSERT, 1, [(1,)] * 700, ("x", "y")))


def failure(code: int, message: str = "message") -> sqlite3.Error:
    problem = sqlite3.OperationalError(message)
    problem.sqlite_errorcode = code
    return problem


@pytest.mark.parametrize(
    "problem, kind, hint",
    [
        (failure(sqlite3.SQLITE_BUSY), StoreUnavailable, "write lock"),
        (failure(sqlite3.SQLITE_BUSY | 2 << 8), StoreUnavailable, "write lock"),
        (failure(sqlite3.SQLITE_FULL), StoreUnavailable, "disk is full"),
        (failure(sqlite3.SQLITE_IOERR | 4 << 8), StoreUnavailable, "system log"),
        (failure(sqlite3.SQLITE_READONLY), StoreUnavailable, "read-only"),
        (failure(sqlite3.SQLITE_CORRUPT), StoreUnavailable, "backup"),
        (failure(sqlite3.SQLITE_NOMEM), StoreUnavailable, "message"),
        (failure(sqlite3.SQLITE_CONSTRAINT), StoreRejected, "refuses"),
        (failure(sqlite3.SQLITE_TOOBIG), StoreRejected, "refuses"),
        (failure(sqlite3.SQLITE_ERROR, "no such table: mulligan_jobs"), SchemaMismatch, "mulligan migrate"),
        (sqlite3.ProgrammingError("binding"), StoreRejected, "cannot store"),
        (OverflowError("too large"), StoreRejected, "cannot store"),
        (BadPayload("ours"), BadPayload, "ours"),
    ],
)
def test_errors_of_the_driver_become_ours(problem: Exception, kind: type[Exception], hint: str) -> None:
    """What may be tried again is unavailable, what would be refused again is rejected, and each says what to do."""
    answer = translated(problem, "jobs.db")
    assert type(answer) is kind
    assert hint in str(answer)
