"""Receipts of finished steps: written under the grip of their job's holder, the first of a name stays."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.change import Grip
from mulligan.core.receipt import RECEIPT_BYTES_BESIDE, RECEIPTS_BYTES_BEFORE, RECEIPTS_MAX, Receipt, in_order, too_large, too_many
from mulligan.stores.migration import Migration
from mulligan.stores.postgres.database import Database, Transaction

# Values of kilobytes are moved out of the row by the server itself. A job's receipts are found by their key, and go with the job.
_TABLE = """
CREATE TABLE {s}.receipts (
  fence bigint NOT NULL,
  at_us bigint NOT NULL,
  job_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  value text COLLATE "C",
  PRIMARY KEY (job_id, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0)
"""
# The job's row is locked first: nobody takes the job over, and no other receipt of it is counted, until this one is written.
# No row is answered where the grip does not hold, and one without a name where there are too many, or too large ones: its fence says
# how many there are. The sizes are known without reading the values.
_FUNCTION = """
CREATE FUNCTION {s}.put_receipt(given_us bigint, held_id text, held_fence bigint, new_name text, new_value text, most bigint,
  beside bigint, most_bytes bigint)
RETURNS TABLE (name text, value text, fence bigint, at_us bigint) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  held text := 'processing';  -- not a constant, as in settle: the key alone shall lead to the row
  known bigint;
  known_bytes bigint;
BEGIN
  PERFORM 1 FROM {s}.jobs j WHERE j.id = held_id AND j.status = held AND j.fence = held_fence FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  RETURN QUERY SELECT r.name, r.value, r.fence, r.at_us FROM {s}.receipts r WHERE r.job_id = held_id AND r.name = new_name;
  IF FOUND THEN
    RETURN;
  END IF;
  SELECT count(*), coalesce(sum(beside + octet_length(r.name) + coalesce(octet_length(r.value), 0)), 0) INTO known, known_bytes
  FROM {s}.receipts r WHERE r.job_id = held_id;
  IF known >= most OR known_bytes > most_bytes THEN
    RETURN QUERY SELECT NULL::text, NULL::text, known, 0::bigint;
    RETURN;
  END IF;
  RETURN QUERY INSERT INTO {s}.receipts AS r (job_id, name, value, fence, at_us)
  VALUES (held_id, new_name, new_value, held_fence, {s}.now_us(given_us)) RETURNING r.name, r.value, r.fence, r.at_us;
END
$$
"""
# Whoever removes a job removes its receipts: retention, also of a worker that knows nothing of them, or a person. One probe of the key
# for each job, in one statement for all that go together.
_LEAVING = """
CREATE FUNCTION {s}.receipts_leave() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  DELETE FROM {s}.receipts r WHERE r.job_id = ANY (ARRAY(SELECT g.id FROM gone g));
  RETURN NULL;
END
$$
"""
_TRIGGER = """
CREATE TRIGGER jobs_left_receipts AFTER DELETE ON {s}.jobs REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION {s}.receipts_leave()
"""
RECEIPTS = Migration(number=3, name="receipts of finished steps", statements=(_TABLE, _FUNCTION, _LEAVING, _TRIGGER))

_PUT = "SELECT name, value, fence, at_us FROM {s}.put_receipt($1, $2, $3, $4, $5, $6, $7, $8)"
_ALL = """
SELECT r.job_id, r.name, r.value, r.fence, r.at_us FROM unnest($1::text[]) AS v(id),
  LATERAL (SELECT * FROM {s}.receipts k WHERE k.job_id = v.id OFFSET 0) AS r
"""
_RESTORE = """
INSERT INTO {s}.receipts (job_id, name, value, fence, at_us)
SELECT v.job_id, v.name, v.value, v.fence, v.at_us
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS v(job_id, name, value, fence, at_us)
"""


async def put_receipt(database: Database, grip: Grip, name: str, value_json: str | None) -> Receipt | None:
    """Stores the receipt of a step, or finds the one that is there; None if the grip does not hold."""
    bounds = (RECEIPTS_MAX, RECEIPT_BYTES_BESIDE, RECEIPTS_BYTES_BEFORE)
    row = await database.row(_PUT, database.now_us(), grip.job_id, grip.fence, name, value_json, *bounds)
    if row is None:
        return None
    if row[0] is None:
        raise too_many(grip.job_id) if row[2] >= RECEIPTS_MAX else too_large(grip.job_id)
    return _receipt_of(*row)


async def receipts(database: Database, ids: Sequence[str]) -> list[list[Receipt]]:
    """The receipts of each job, in the order in which they were stored."""
    found: dict[str, list[Receipt]] = {}
    wanted = list(dict.fromkeys(ids))
    for job_id, *columns in await database.reading(lambda transaction: transaction.rows(_ALL, wanted)):
        found.setdefault(job_id, []).append(_receipt_of(*columns))
    return [in_order(found.get(job_id, ())) for job_id in ids]


async def restore_receipts(transaction: Transaction, receipts: Sequence[tuple[str, Receipt]]) -> None:
    """Writes those of restored jobs, given with the ids of their jobs."""
    if receipts:
        rows = [(job_id, one.name, one.value_json, one.fence, one.at_us) for job_id, one in receipts]
        await transaction.rows(_RESTORE, *([row[place] for row in rows] for place in range(5)))


def _receipt_of(name: str, value: str | None, fence: int, at_us: int) -> Receipt:
    return Receipt(name=name, value_json=value, fence=fence, at_us=at_us)
