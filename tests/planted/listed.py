"""Every planted bug. One that seed-bugs name is marked with what they call it."""

from __future__ import annotations

from tests.planted.in_policy import POLICY
from tests.planted.in_servers import SERVERS
from tests.planted.in_store import STORE
from tests.planted.in_worker import WORKER

BUGS = (*STORE, *POLICY, *WORKER, *SERVERS)

# What the source designs got wrong and no small edit of ours can bring back: there is nothing here that could be edited so.
BY_DESIGN = {
    "A4": "a change is made from the job the claim returned, and carries its fence",
    "A16": "every store keeps integer microseconds, which tests/conformance/test_roundtrip.py reads back",
    "A32": "a dead letter is a status, so nothing is moved",
    "A34": "each claim names its own lease",
    "B6": "a statement of that document, not code",
    "B7": "a statement of that document, not code",
    "B12": "run_at is set exactly while a job is pending, which S12 checks after every event",
    "B15": "there is one terminal status for it",
    "C1": "each settlement is one write of the whole row",
    "C9": "there is no cache beside the store",
    "D11": "a statement of that document, not code",
    "D16": "figures are counted by the store, tests/conformance/test_stats.py",
    "E1": "each settlement is one write of the whole row",
    "E8": "a claim and the run of a job are different functions, so no job of an earlier turn is at hand",
    "E12": "the policy is asked with the error that was raised, there is no other way to call it",
    "E15": "payloads are JSON, tests/core/test_codec.py",
    "E16": "ctx.once and ctx.idempotency_key, tests/worker/test_once.py",
    "E22": "listings are paged by contract, tests/conformance/test_find.py",
    "E23": "attempts, failures, crashes, snoozes and releases are counted apart, which S7 and S8 check",
}
