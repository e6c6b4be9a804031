"""The tables, as the first of the numbered migrations. A migration that was ever released is never edited; a change is a new one.

Everything lives in one schema of its own. The texts have `{s}` where its quoted name belongs (see database.in_schema), so that their
checksums are the same in every schema.
"""

from __future__ import annotations

from mulligan.stores.migration import Migration
from mulligan.stores.postgres.functions_careful import CAREFUL_FUNCTIONS
from mulligan.stores.postgres.functions_claim import CLAIM_FUNCTIONS
from mulligan.stores.postgres.functions_events import EVENT_FUNCTIONS
from mulligan.stores.postgres.functions_limits import LIMIT_FUNCTIONS
from mulligan.stores.postgres.functions_rounds import ROUND_FUNCTIONS
from mulligan.stores.postgres.functions_write import WRITE_FUNCTIONS
from mulligan.stores.postgres.receipts import RECEIPTS

MAKE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS {s}"
# The journal of migrations itself. It is made before the first of them, and is the one table that can never change.
JOURNAL = """
CREATE TABLE IF NOT EXISTS {s}.migrations (
  number integer PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)
"""

# Columns of a fixed length that are never null stand first, then those that indexes need: the server finds them without walking
# through the texts. Two are the store's own, like `ready` (claim_place: its order among those of its claim; slots: those it is processing
# under, see core/limits). JSON is kept as text, because it must come back byte for byte.
# COLLATE "C" is the order of code points: that of every other store, and the same on every server whatever its locale.
# A job is written three times in its life (insert, claim, settle), each time with other indexed values, so there are no heap-only
# updates to make room for. But where the three versions of a row, and its three entries in the index of ids, find room in one page, no
# page has to be added or split for them, and the log of the server is shorter. The price is room: a table of waiting jobs is larger by two
# thirds, one of finished jobs by a quarter. Vacuum must come by the number of dead rows and not by the share of the table they are: a
# queue with ten million done jobs has the same turnover as an empty one.
_JOBS = """
CREATE TABLE {s}.jobs (
  created_at_us bigint NOT NULL,
  updated_at_us bigint NOT NULL,
  due_first_us bigint NOT NULL,
  due_us bigint NOT NULL,
  fence bigint NOT NULL DEFAULT 0,
  attempts bigint NOT NULL DEFAULT 0,
  failures bigint NOT NULL DEFAULT 0,
  crashes bigint NOT NULL DEFAULT 0,
  snoozes bigint NOT NULL DEFAULT 0,
  releases bigint NOT NULL DEFAULT 0,
  generation bigint NOT NULL DEFAULT 1,
  priority integer NOT NULL,
  ready boolean NOT NULL DEFAULT false,
  cancel_requested boolean NOT NULL DEFAULT false,
  id text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  lane text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  run_at_us bigint,
  lease_expires_at_us bigint,
  finished_at_us bigint,
  unique_key text COLLATE "C",
  schedule text COLLATE "C",
  concurrency_key text COLLATE "C",
  job_group text COLLATE "C",
  slots text COLLATE "C",
  task text COLLATE "C" NOT NULL,
  payload text COLLATE "C" NOT NULL,
  policy text COLLATE "C" NOT NULL,
  max_retries bigint,
  timeout_us bigint,
  max_age_us bigint,
  claim_id text COLLATE "C",
  settle_id text COLLATE "C",
  lease_owner text COLLATE "C",
  last_delay_us bigint,
  last_error text COLLATE "C",
  result_json text COLLATE "C",
  tick_us bigint,
  fair_key text COLLATE "C",
  tags text COLLATE "C" NOT NULL DEFAULT '[]',
  trace text COLLATE "C",
  claim_place bigint,
  PRIMARY KEY (id) WITH (fillfactor = 45)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)
"""
# Small tables with a high turnover. A record that was made before the store knew the time has its end beside it.
_HISTORY = """
CREATE TABLE {s}.history (
  job_id text COLLATE "C" NOT NULL,
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  ended_at_us bigint,
  record text COLLATE "C" NOT NULL,
  PRIMARY KEY (job_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)
"""
# The events of a write stand together (entries.py): `many` of them, of which the last has the place `seq`. They are not compressed: that
# would cost more than writing them does.
_EVENTS = """
CREATE TABLE {s}.events (
  seq bigint NOT NULL PRIMARY KEY,
  many bigint NOT NULL,
  at_us bigint,
  bodies text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)
"""
_QUEUES = """
CREATE TABLE {s}.queues (
  queue text COLLATE "C" NOT NULL PRIMARY KEY,
  paused boolean NOT NULL,
  reason text NOT NULL,
  changed_by text NOT NULL,
  updated_at_us bigint NOT NULL
)
"""
_SCHEDULES = """
CREATE TABLE {s}.schedules (
  name text COLLATE "C" NOT NULL PRIMARY KEY,
  job text COLLATE "C" NOT NULL,
  interval_us bigint NOT NULL,
  anchor_us bigint NOT NULL,
  next_tick_us bigint NOT NULL,
  missed text NOT NULL,
  paused boolean NOT NULL,
  updated_at_us bigint NOT NULL
)
"""
_WORKERS = """
CREATE TABLE {s}.workers (
  id text COLLATE "C" NOT NULL PRIMARY KEY,
  seen_at_us bigint NOT NULL,
  body text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)
"""
# The claim ids that took jobs within the last hour: a repeat of one must not take more.
_CLAIMS = """
CREATE TABLE {s}.claims (
  claim_id text COLLATE "C" NOT NULL PRIMARY KEY,
  at_us bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)
"""
# How many finished jobs a queue has, as deltas that are summed up and now and then put together: one row per queue that every settle
# updated would let them wait for each other. The queue '' with status 'past' counts the writes that may have put a job behind the
# floor of a claim (floors.py).
_TALLIES = """
CREATE TABLE {s}.tallies (
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  jobs bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)
"""
# The queues that ever had a job with a group. Nobody waits for another's commit to write a name, so one may be there more than once.
_GROUPED = 'CREATE TABLE {s}.grouped (queue text COLLATE "C" NOT NULL)'
# What is in a bucket of tokens, in millionths, and when that was so. A level is written over and over; there is room for it in the page.
_BUCKETS = """
CREATE TABLE {s}.buckets (
  key text COLLATE "C" NOT NULL PRIMARY KEY,
  level_u bigint NOT NULL,
  at_us bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)
"""
_NOTES = """
CREATE TABLE {s}.notes (
  key text COLLATE "C" NOT NULL PRIMARY KEY,
  body text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  updated_at_us bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)
"""

_TABLES = Migration(
    number=1,
    name="jobs, history, events, queues, schedules, workers, claims, tallies, groups, buckets, notes",
    statements=(
        _JOBS,
        # A pending job without a group is in exactly one of these two. `ready` is set by a claim in the order of creation: without it
        # such a claim would have to step over every job that waits for the future.
        """CREATE INDEX jobs_due ON {s}.jobs (queue, lane, priority, run_at_us, id)
           WHERE status = 'pending' AND NOT ready AND job_group IS NULL""",
        """CREATE INDEX jobs_fifo ON {s}.jobs (queue, priority, created_at_us, id)
           WHERE status = 'pending' AND ready""",
        # One with a group is in these two: in the line of its group, and by its time among all of them. They say "has a group" in two
        # ways, so that each serves only the statements that were written for it, whatever the planner thinks of the other.
        """CREATE INDEX jobs_ring ON {s}.jobs (queue, lane, priority, job_group, run_at_us, id)
           WHERE job_group IS NOT NULL AND status = 'pending'""",
        """CREATE INDEX jobs_ring_due ON {s}.jobs (queue, lane, priority, run_at_us)
           WHERE status = 'pending' AND coalesce(job_group, '') <> ''""",
        "CREATE INDEX jobs_lease ON {s}.jobs (lease_expires_at_us, id) WHERE status = 'processing'",
        # What limits count. Both columns are set only while a job is processing; the status itself is left out here, so that a count
        # cannot be made along the index of all leases.
        "CREATE INDEX jobs_slots ON {s}.jobs (queue, lane, lease_expires_at_us) WHERE slots IS NOT NULL",
        """CREATE INDEX jobs_keyed ON {s}.jobs (queue, concurrency_key, lease_expires_at_us)
           WHERE concurrency_key IS NOT NULL AND lease_expires_at_us IS NOT NULL""",
        """CREATE UNIQUE INDEX jobs_unique ON {s}.jobs (queue, unique_key)
           WHERE unique_key IS NOT NULL AND status IN ('pending', 'processing')""",
        "CREATE INDEX jobs_finished ON {s}.jobs (status, finished_at_us, id) WHERE finished_at_us IS NOT NULL",
        # What people look for by status is rare among the finished; the common case (done) pays nothing for it.
        "CREATE INDEX jobs_rest ON {s}.jobs (status, id) WHERE status IN ('failed', 'cancelled')",
        "CREATE INDEX jobs_schedule ON {s}.jobs (schedule, id) WHERE schedule IS NOT NULL",
        _HISTORY,
        _EVENTS,
        "ALTER TABLE {s}.events ALTER COLUMN bodies SET STORAGE EXTERNAL",
        _QUEUES,
        _SCHEDULES,
        _WORKERS,
        _CLAIMS,
        "CREATE INDEX claims_age ON {s}.claims (at_us)",
        _TALLIES,
        "CREATE INDEX tallies_past ON {s}.tallies (status) WHERE status = 'past'",
        _GROUPED,
        "CREATE INDEX grouped_queue ON {s}.grouped (queue)",
        _BUCKETS,
        _NOTES,
    ),
)
_FUNCTIONS = Migration(
    number=2,
    name="claim, settle, insert, renew and what they need",
    statements=(*WRITE_FUNCTIONS, *EVENT_FUNCTIONS, *CLAIM_FUNCTIONS, *LIMIT_FUNCTIONS, *ROUND_FUNCTIONS, *CAREFUL_FUNCTIONS),
)

MIGRATIONS: tuple[Migration, ...] = (_TABLES, _FUNCTIONS, RECEIPTS)
