"""The tables, as numbered migrations. A migration that was ever released is never edited; a change is a new one at the end.

All names begin with mulligan_, because the file may be the application's own database (see insert_in).
The tables are STRICT: a number is a number and a text is a text, also for a program that writes here by hand.
"""

from __future__ import annotations

from mulligan.stores.migration import Migration

# The journal of migrations itself. It is made before the first of them, and is the one table that can never change.
JOURNAL = """
CREATE TABLE IF NOT EXISTS mulligan_migrations (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  applied_at_us INTEGER NOT NULL
) STRICT
"""

# Wide texts stand last: a row with a long payload spills over, and what the guards read must lie before the spill.
_JOBS = """
CREATE TABLE mulligan_jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  queue TEXT NOT NULL,
  task TEXT NOT NULL,
  status TEXT NOT NULL,
  lane TEXT NOT NULL,
  priority INTEGER NOT NULL,
  ready INTEGER NOT NULL DEFAULT 0,
  run_at_us INTEGER,
  created_at_us INTEGER NOT NULL,
  updated_at_us INTEGER NOT NULL,
  finished_at_us INTEGER,
  due_first_us INTEGER NOT NULL,
  due_us INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  crashes INTEGER NOT NULL DEFAULT 0,
  snoozes INTEGER NOT NULL DEFAULT 0,
  releases INTEGER NOT NULL DEFAULT 0,
  generation INTEGER NOT NULL DEFAULT 1,
  fence INTEGER NOT NULL DEFAULT 0,
  claim_id TEXT,
  claim_place INTEGER,
  settle_id TEXT,
  lease_owner TEXT,
  lease_expires_at_us INTEGER,
  slots TEXT,
  last_delay_us INTEGER,
  max_retries INTEGER,
  timeout_us INTEGER,
  max_age_us INTEGER,
  schedule TEXT,
  tick_us INTEGER,
  unique_key TEXT,
  concurrency_key TEXT,
  fair_key TEXT,
  grp TEXT,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  tags TEXT NOT NULL DEFAULT '[]',
  trace TEXT,
  policy TEXT NOT NULL,
  last_error TEXT,
  result_json TEXT,
  payload TEXT NOT NULL
) STRICT
"""

_FIRST = Migration(
    number=1,
    name="jobs, history, events, queues, schedules, buckets, notes, workers",
    statements=(
        _JOBS,
        "CREATE UNIQUE INDEX mulligan_jobs_id ON mulligan_jobs (id)",
        # A pending job without a group is in exactly one of these two. `ready` is set by a claim in the order of creation (claim.py):
        # without it such a claim would have to step over every job that waits for the future.
        """CREATE INDEX mulligan_jobs_due ON mulligan_jobs (queue, lane, priority, run_at_us, id)
           WHERE status = 'pending' AND ready = 0 AND grp IS NULL""",
        """CREATE INDEX mulligan_jobs_fifo ON mulligan_jobs (queue, priority, lane, created_at_us, id)
           WHERE status = 'pending' AND ready = 1""",
        # A pending job with a group (`group` is a word of SQL) is in both of these, and never marked. The first finds the groups and
        # what is due in each of them; the second tells whether anything is due at all, and when the next job will be.
        """CREATE INDEX mulligan_jobs_groups ON mulligan_jobs (queue, lane, priority, grp, run_at_us, id)
           WHERE grp IS NOT NULL AND status = 'pending'""",
        """CREATE INDEX mulligan_jobs_grouped ON mulligan_jobs (queue, lane, priority, run_at_us, id)
           WHERE grp IS NOT NULL AND status = 'pending'""",
        # What is counted for slots (limits.py): jobs that were claimed under a limit, which `slots` says while they are processing,
        # and jobs that have a concurrency key.
        """CREATE INDEX mulligan_jobs_slots ON mulligan_jobs (queue, lane, lease_expires_at_us)
           WHERE slots IS NOT NULL AND status = 'processing'""",
        """CREATE INDEX mulligan_jobs_keys ON mulligan_jobs (queue, concurrency_key, lease_expires_at_us, lane)
           WHERE concurrency_key IS NOT NULL AND status = 'processing'""",
        "CREATE INDEX mulligan_jobs_lease ON mulligan_jobs (lease_expires_at_us) WHERE status = 'processing'",
        """CREATE UNIQUE INDEX mulligan_jobs_unique ON mulligan_jobs (queue, unique_key)
           WHERE unique_key IS NOT NULL AND status IN ('pending', 'processing')""",
        "CREATE INDEX mulligan_jobs_finished ON mulligan_jobs (status, finished_at_us, id) WHERE finished_at_us IS NOT NULL",
        # What people look for by status is rare among the finished; the common case (done) pays nothing for it.
        "CREATE INDEX mulligan_jobs_rest ON mulligan_jobs (status, id) WHERE status IN ('failed', 'cancelled')",
        "CREATE INDEX mulligan_jobs_schedule ON mulligan_jobs (schedule, id) WHERE schedule IS NOT NULL",
        # How many finished jobs a queue has, so that nobody has to count them. Kept by triggers on finished_at_us, which every way into
        # and out of rest writes, and a claim does not. (Nothing is inserted at rest; whoever copies such rows must add them here.)
        """CREATE TABLE mulligan_tallies (
             queue TEXT NOT NULL,
             status TEXT NOT NULL,
             jobs INTEGER NOT NULL,
             PRIMARY KEY (queue, status)
           ) STRICT, WITHOUT ROWID""",
        """CREATE TRIGGER mulligan_jobs_came_to_rest AFTER UPDATE OF finished_at_us ON mulligan_jobs WHEN NEW.finished_at_us IS NOT NULL
           BEGIN
             INSERT INTO mulligan_tallies (queue, status, jobs) VALUES (NEW.queue, NEW.status, 1)
               ON CONFLICT (queue, status) DO UPDATE SET jobs = jobs + 1;
           END""",
        """CREATE TRIGGER mulligan_jobs_left_rest AFTER UPDATE OF finished_at_us ON mulligan_jobs WHEN OLD.finished_at_us IS NOT NULL
           BEGIN
             UPDATE mulligan_tallies SET jobs = jobs - 1 WHERE queue = OLD.queue AND status = OLD.status;
           END""",
        """CREATE TRIGGER mulligan_jobs_removed AFTER DELETE ON mulligan_jobs
           BEGIN
             UPDATE mulligan_tallies SET jobs = jobs - 1
               WHERE OLD.finished_at_us IS NOT NULL AND queue = OLD.queue AND status = OLD.status;
             DELETE FROM mulligan_history WHERE job = OLD.seq;
           END""",
        "CREATE TABLE mulligan_history (seq INTEGER PRIMARY KEY, job INTEGER NOT NULL, record TEXT NOT NULL) STRICT",
        "CREATE INDEX mulligan_history_job ON mulligan_history (job)",
        "CREATE TABLE mulligan_events (seq INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT",
        """CREATE TABLE mulligan_queues (
             queue TEXT PRIMARY KEY NOT NULL,
             paused INTEGER NOT NULL,
             reason TEXT NOT NULL,
             changed_by TEXT NOT NULL,
             updated_at_us INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE mulligan_schedules (
             name TEXT PRIMARY KEY NOT NULL,
             job TEXT NOT NULL,
             interval_us INTEGER NOT NULL,
             anchor_us INTEGER NOT NULL,
             next_tick_us INTEGER NOT NULL,
             missed TEXT NOT NULL,
             paused INTEGER NOT NULL,
             updated_at_us INTEGER NOT NULL
           ) STRICT""",
        # What is in the buckets of limits, in millionths of a token, and when it was. Those that nobody touched for long are forgotten.
        """CREATE TABLE mulligan_buckets (
             key TEXT PRIMARY KEY NOT NULL,
             level_u INTEGER NOT NULL,
             at_us INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX mulligan_buckets_age ON mulligan_buckets (at_us)",
        """CREATE TABLE mulligan_notes (
             key TEXT PRIMARY KEY NOT NULL,
             body TEXT NOT NULL,
             version INTEGER NOT NULL,
             updated_at_us INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE mulligan_workers (id TEXT PRIMARY KEY NOT NULL, seen_at_us INTEGER NOT NULL, body TEXT NOT NULL) STRICT",
        # The claim ids that took jobs within the last hour: a repeat of one must not take more.
        "CREATE TABLE mulligan_claims (seq INTEGER PRIMARY KEY, claim_id TEXT NOT NULL UNIQUE, at_us INTEGER NOT NULL) STRICT",
    ),
)

_RECEIPTS = Migration(
    number=2,
    name="receipts of finished steps",
    statements=(
        """CREATE TABLE mulligan_receipts (
             seq INTEGER PRIMARY KEY,
             job INTEGER NOT NULL,
             name TEXT NOT NULL,
             fence INTEGER NOT NULL,
             at_us INTEGER NOT NULL,
             value TEXT
           ) STRICT""",
        "CREATE UNIQUE INDEX mulligan_receipts_job ON mulligan_receipts (job, name)",
        """CREATE TRIGGER mulligan_jobs_left_receipts AFTER DELETE ON mulligan_jobs
           BEGIN
             DELETE FROM mulligan_receipts WHERE job = OLD.seq;
           END""",
    ),
)

_ENTRIES = Migration(
    number=3,
    name="the events of a call in one entry, the end of an execution beside its record",
    statements=(
        # The text of a record is made before the store's time is known (at_once.py). Older ones say themselves when they ended.
        "ALTER TABLE mulligan_history ADD COLUMN ended_at_us INTEGER",
        # An entry has the events behind before_seq up to its own seq (eventlog.py); a body without one is a single event. So it stays a
        # table that a process of the version before can go on writing to.
        "ALTER TABLE mulligan_events ADD COLUMN before_seq INTEGER",
        "ALTER TABLE mulligan_events ADD COLUMN at_us INTEGER",
    ),
)

_ERRORS = Migration(
    number=4,
    name="the error of a failure that is tried again stands in its record only",
    statements=(
        # The seq of the record whose error is the job's last one. A text in last_error counts before it, and one that was left behind by a
        # process of the version before, which knows of no such thing, counts for nothing (rows.py).
        "ALTER TABLE mulligan_jobs ADD COLUMN error_record INTEGER",
        "ALTER TABLE mulligan_history ADD COLUMN error TEXT",
    ),
)

MIGRATIONS: tuple[Migration, ...] = (_FIRST, _RECEIPTS, _ENTRIES, _ERRORS)
