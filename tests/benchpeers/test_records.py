from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.peers.environments import ADAPTERS
from benchmarks.peers.records import FINISHED, STARTED, SUMS, TRACE, SumReader, Sums, TraceReader, pauses_ns, waits_ms

PYTHON = f"import sys; sys.path.insert(0, {str(ADAPTERS)!r}); import jobs; " + "{}"
NODE = f"const jobs = require({str(ADAPTERS / 'jobs.js')!r}); " + "{}"
# Node is there where the peers that need it are measured, and need not be elsewhere.
LANGUAGES = ["python", *(["node"] if shutil.which("node") else [])]


def run_jobs(language: str, code: str, records: Path, expect: int = 0) -> None:
    """Runs a line of code beside the jobs of a language."""
    command = [sys.executable, "-c", PYTHON.format(code)] if language == "python" else ["node", "-e", NODE.format(code)]
    subprocess.run(command, check=True, timeout=50, env={**os.environ, "BENCH_RECORDS": str(records), "BENCH_EXPECT": str(expect)})


@pytest.mark.parametrize("language", LANGUAGES)
def test_counted_jobs_are_told_when_the_last_one_has_begun(language: str, tmp_path: Path) -> None:
    """The jobs of every language write what the runner reads: count, sum of the numbers and times."""
    code = {"python": "[jobs.noop(number) for number in range(5)]", "node": "[0, 1, 2, 3, 4].forEach(jobs.noop)"}[language]
    run_jobs(language, code, tmp_path / "records", expect=5)
    sums = SumReader(tmp_path / "records").read()
    assert sums.is_whole(5)
    assert 0 < sums.first_ns <= sums.last_ns


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_mortal_job_leaves_a_start_and_an_end(language: str, tmp_path: Path) -> None:
    """One that was killed in between would leave the start alone."""
    run_jobs(language, "jobs.mortal(3)", tmp_path / "records")
    trace = TraceReader(tmp_path / "records").read()
    assert (dict(trace.starts), trace.ends) == ({3: 1}, {3})
    assert trace.first_start_ns[3] < trace.last_ns


def test_the_last_sums_of_each_process_are_added(tmp_path: Path) -> None:
    """Two processes, one of which told twice; half a record at the end waits for its other half."""
    records = tmp_path / "records"
    whole = [SUMS.pack(1, 2, 1, 50, 60), SUMS.pack(2, 1, 5, 40, 55), SUMS.pack(1, 3, 4, 50, 90)]
    late = SUMS.pack(2, 2, 7, 40, 95)
    records.write_bytes(b"".join(whole) + late[:11])
    reader = SumReader(records)
    assert reader.read() == Sums(begun=4, total=9, first_ns=40, last_ns=90)
    with records.open("ab") as file:
        file.write(late[11:])
    assert reader.read() == Sums(begun=5, total=11, first_ns=40, last_ns=95)


def test_sums_tell_a_job_that_ran_twice_from_one_that_was_left_out() -> None:
    """The count alone would be right in the second case."""
    assert Sums(4, 0 + 1 + 2 + 3).is_whole(4)
    assert not Sums(4, 0 + 1 + 2 + 2).is_whole(4)
    assert not Sums(5, 0 + 1 + 2 + 3 + 3).is_whole(4)
    assert Sums(12, 18).is_whole(4, attempts=3)


def test_only_long_pauses_between_executions_count() -> None:
    """A record without a new execution is no end of a pause."""
    steps = [Sums(1, 0, 0, 100), Sums(2, 0, 0, 150), Sums(2, 0, 0, 150), Sums(3, 0, 0, 950), Sums(9, 0, 0, 960)]
    assert pauses_ns(steps, longer_ns=500) == 800
    assert pauses_ns(steps, longer_ns=900) == 0


def test_a_kill_is_judged_by_starts_and_ends(tmp_path: Path) -> None:
    """Of five jobs two finished, of which one was started twice, one was only started and two were never seen."""
    seen = [(0, STARTED, 10), (0, FINISHED, 20), (1, STARTED, 11), (2, STARTED, 12), (1, STARTED, 30), (1, FINISHED, 40)]
    (tmp_path / "records").write_bytes(b"".join(TRACE.pack(*one) for one in seen))
    death = TraceReader(tmp_path / "records").read().death(5)
    assert death == (2, 1, 3, 40)


def test_a_wait_ends_with_the_first_start() -> None:
    """Jobs are numbered in the order in which they were sent; one that never started is an error."""
    assert waits_ms([1_000_000, 2_000_000], {1: 2_500_000, 0: 4_000_000}) == [3.0, 0.5]
    with pytest.raises(KeyError):
        waits_ms([1, 2], {0: 5})
