"""Claiming inside the server: which jobs, in which order, and the write that takes them, in one round trip.

`claim` answers rows of the type `claimed`, in any order; claim.py knows the right one. One more row, without an id, has the time of
the call as created_at_us, the next due time as due_us, and the counter of writes into the past as fence; if one of the queues has jobs
with groups, it says so by cancel_requested, and nothing else was done: such claims are for functions_careful.py. All that is read and
written here are jobs without a group. What the claimer knows is not sent: each column costs the server as much as sending it, once
more for the row that the function keeps until it ends. So the common takes stand in `claim` itself, not in a function that it calls.

The common asks (a lane in the order of run_at, a queue in the order of creation) are counted along their index, the total is shared
out (`allot`), and each ask locks what it may take; a row that another claimer has locked is passed over. Where only one line has due
jobs, there is nothing to count or to share. Rare asks (those that overlap, marked jobs met in the order of run_at) are listed in full
first, and their rows are then locked one by one; `claim_place` keeps their order.

Rows that were locked are written by their place in the table (ctid): a join by id could also be made the wrong way round, through the
whole table, if an estimate of its size is old. A row that was changed between the look and the lock has moved; it is passed over like
one that is locked, and the next look finds it.

Claims in the order of creation need a list of due jobs in that order, and no index can have "due" in it. So such a claim first marks
due jobs as `ready`, a bounded number at a time; the marked ones have an index of their own.

A pending job's due_us is its run_at_us, so a claim has nothing to write there. It does all the same: the order of its answer and the
floors (floors.py) go by it, and a run_at_us that was edited by hand must not mislead them.
"""

from __future__ import annotations

from mulligan.stores.postgres.functions_allot import ALLOT

# Marks due jobs for claims in the order of creation. Whoever has something to mark does so alone for its queues: the others would
# otherwise pass over the rows that are being marked, and find nothing while jobs are due.
_MARK = """
CREATE FUNCTION {s}.mark_ready(at_us bigint, queues text[], lanes text[], priorities integer[], by_age boolean[], paused text[],
  most bigint)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  wanted record;
  is_locked boolean := false;
  name text;
BEGIN
  FOR wanted IN
    SELECT DISTINCT a.queue, l.lane, a.priority
    FROM unnest(queues, lanes, priorities, by_age) AS a(queue, lane, priority, is_by_age), unnest(ARRAY['fresh', 'retry']) AS l(lane)
    WHERE a.is_by_age AND (a.lane IS NULL OR a.lane = l.lane) AND a.queue <> ALL (paused)
  LOOP
    CONTINUE WHEN NOT EXISTS (
      SELECT 1 FROM {s}.jobs j WHERE j.status = 'pending' AND NOT j.ready AND j.job_group IS NULL AND j.queue = wanted.queue
        AND j.lane = wanted.lane AND j.priority = wanted.priority AND j.run_at_us <= at_us);
    IF NOT is_locked THEN
      FOR name IN SELECT DISTINCT a.queue FROM unnest(queues, by_age) AS a(queue, is_by_age) WHERE a.is_by_age ORDER BY a.queue LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('mulligan marks {s} ' || name, 0));
      END LOOP;
      is_locked := true;
    END IF;
    WITH due AS MATERIALIZED (
      SELECT d.ctid AS tid FROM {s}.jobs d WHERE d.status = 'pending' AND NOT d.ready AND d.job_group IS NULL AND d.queue = wanted.queue
        AND d.lane = wanted.lane AND d.priority = wanted.priority AND d.run_at_us <= at_us
      ORDER BY d.run_at_us, d.id LIMIT most FOR UPDATE SKIP LOCKED)
    UPDATE {s}.jobs j SET ready = true FROM due WHERE j.ctid = due.tid;
  END LOOP;
END
$$
"""

# The ids of a claim with unusual asks, in their order, each as often as once: a job stands in the line of the first ask that lists it.
_LIST = """
CREATE FUNCTION {s}.list_slowly(at_us bigint, queues text[], lanes text[], priorities integer[], guaranteed bigint[], by_age boolean[],
  paused text[], total bigint, passed text[], most bigint) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  asks integer := cardinality(queues);
  seen text[] := passed;
  line text[];
  lined text[] := '{}';
  starts integer[];
  available bigint[] := array_fill(0::bigint, ARRAY[cardinality(queues)]);
  takes bigint[];
  chosen text[] := '{}';
  i integer;
BEGIN
  FOR i IN 1..asks LOOP
    starts[i] := coalesce(cardinality(lined), 0);
    CONTINUE WHEN queues[i] = ANY (paused);
    IF by_age[i] THEN
      line := ARRAY(
        SELECT j.id FROM {s}.jobs j WHERE j.status = 'pending' AND j.ready AND j.queue = queues[i] AND j.priority = priorities[i]
          AND (lanes[i] IS NULL OR j.lane = lanes[i]) AND j.run_at_us <= at_us AND j.id <> ALL (passed)
        ORDER BY j.created_at_us, j.id LIMIT total);
    ELSE
      line := ARRAY(
        SELECT u.id FROM (
          (SELECT f.run_at_us, f.id FROM {s}.jobs f WHERE (lanes[i] IS NULL OR lanes[i] = 'fresh') AND f.status = 'pending' AND NOT f.ready
             AND f.job_group IS NULL AND f.queue = queues[i] AND f.lane = 'fresh' AND f.priority = priorities[i]
             AND f.run_at_us <= at_us AND f.id <> ALL (passed)
           ORDER BY f.run_at_us, f.id LIMIT total)
          UNION ALL
          (SELECT r.run_at_us, r.id FROM {s}.jobs r WHERE (lanes[i] IS NULL OR lanes[i] = 'retry') AND r.status = 'pending' AND NOT r.ready
             AND r.job_group IS NULL AND r.queue = queues[i] AND r.lane = 'retry' AND r.priority = priorities[i]
             AND r.run_at_us <= at_us AND r.id <> ALL (passed)
           ORDER BY r.run_at_us, r.id LIMIT total)
          UNION ALL
          (SELECT m.run_at_us, m.id FROM {s}.jobs m WHERE m.status = 'pending' AND m.ready AND m.queue = queues[i]
             AND m.priority = priorities[i] AND (lanes[i] IS NULL OR m.lane = lanes[i]) AND m.run_at_us <= at_us AND m.id <> ALL (passed)
           LIMIT most)) AS u
        ORDER BY u.run_at_us, u.id LIMIT total);
    END IF;
    line := ARRAY(SELECT n.id FROM unnest(line) WITH ORDINALITY AS n(id, place) WHERE n.id <> ALL (seen) ORDER BY n.place);
    available[i] := cardinality(line);
    seen := seen || line;
    lined := lined || line;
  END LOOP;
  takes := {s}.allot(total, guaranteed, available, queues, lanes);
  FOR i IN 1..asks LOOP
    chosen := chosen || lined[starts[i] + 1:starts[i] + takes[i]];
  END LOOP;
  RETURN chosen;
END
$$
"""

# In plpgsql, whose plans are kept: a function in SQL would be planned with every claim.
_NEXT_DUE = """
CREATE FUNCTION {s}.next_due(at_us bigint, queues text[], paused text[]) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
  RETURN (SELECT min(n.run_at_us) FROM (
    SELECT (
      SELECT j.run_at_us FROM {s}.jobs j WHERE j.status = 'pending' AND NOT j.ready AND j.job_group IS NULL AND j.queue = q.queue
        AND j.lane = l.lane AND j.priority = p.priority AND j.run_at_us > at_us ORDER BY j.run_at_us, j.id LIMIT 1) AS run_at_us
    FROM (SELECT DISTINCT d.queue FROM unnest(queues) AS d(queue) WHERE d.queue <> ALL (paused)) AS q,
      unnest(ARRAY['fresh', 'retry']) AS l(lane), unnest(ARRAY[0, 1, 2]) AS p(priority)
    UNION ALL
    SELECT m.run_at_us
    FROM (SELECT DISTINCT d.queue FROM unnest(queues) AS d(queue) WHERE d.queue <> ALL (paused)) AS q,
      LATERAL (SELECT k.run_at_us FROM {s}.jobs k WHERE k.status = 'pending' AND k.ready AND k.queue = q.queue AND k.run_at_us > at_us
        OFFSET 0) AS m) AS n);
END
$$
"""

# A claimed job as it is sent. The names are those of the columns, in the order of claim.py's COLUMNS. Empty are those of which every
# claimed job has the same or nothing, and those that the claim itself wrote, unless they are of an earlier call. `finished_at_us` is the
# place of the job in its claim, where only the server knows that.
_CLAIMED = """
CREATE TYPE {s}.claimed AS (id text, queue text, task text, payload text, policy text, max_retries bigint, priority integer, lane text,
  status text, run_at_us bigint, created_at_us bigint, updated_at_us bigint, finished_at_us bigint, due_first_us bigint, due_us bigint,
  attempts bigint, failures bigint, crashes bigint, snoozes bigint, releases bigint, generation bigint, timeout_us bigint,
  max_age_us bigint, fence bigint, claim_id text, settle_id text, lease_owner text, lease_expires_at_us bigint, last_delay_us bigint,
  last_error text, result_json text, schedule text, tick_us bigint, unique_key text, concurrency_key text, fair_key text, job_group text,
  tags text, trace text, cancel_requested boolean)
"""


def _sent(updated: str, owner: str, lease_end: str) -> str:
    """The columns of `claimed`, of a row of jobs called j."""
    return f"""j.id, j.queue, j.task, j.payload, j.policy, j.max_retries, j.priority, j.lane, NULL::text, NULL::bigint,
      j.created_at_us, {updated}, j.claim_place, j.due_first_us, j.due_us, j.attempts, j.failures, j.crashes, j.snoozes, j.releases,
      j.generation, j.timeout_us, j.max_age_us, j.fence, NULL::text, j.settle_id, {owner}, {lease_end}, j.last_delay_us, j.last_error,
      j.result_json, j.schedule, j.tick_us, j.unique_key, j.concurrency_key, j.fair_key, j.job_group, j.tags, j.trace, j.cancel_requested"""


_SENT = _sent("NULL::bigint", "NULL::text", "NULL::bigint")
_SENT_AGAIN = _sent("j.updated_at_us", "j.lease_owner", "j.lease_expires_at_us")

_TAKE_LISTED = """
CREATE FUNCTION {s}.take_listed(at_us bigint, ids text[], new_claim_id text, new_owner text, lease_us bigint, first_place bigint)
RETURNS SETOF {s}.claimed LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH locked AS MATERIALIZED (
    SELECT l.tid, v.place FROM unnest(ids) WITH ORDINALITY AS v(id, place),
      LATERAL (SELECT k.ctid AS tid, k.status FROM {s}.jobs k WHERE k.id = v.id FOR UPDATE SKIP LOCKED) AS l
    WHERE l.status = 'pending')
  UPDATE {s}.jobs j SET status = 'processing', due_us = j.run_at_us, run_at_us = NULL, ready = false, fence = j.fence + 1,
      attempts = j.attempts + 1,
    claim_id = new_claim_id, claim_place = first_place + locked.place, lease_owner = new_owner, lease_expires_at_us = at_us + lease_us,
    updated_at_us = at_us
  FROM locked WHERE j.ctid = locked.tid RETURNING <sent>;
END
$$
""".replace("<sent>", _SENT)

# A repeat waits for the call it repeats, which may still be under way. It would pass over the rows that the other has locked, and answer
# that there is nothing, while jobs are held in its name.
_LOCK = """
CREATE FUNCTION {s}.lock_claim(claim_id text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('mulligan claim {s} ' || claim_id, 0));
END
$$
"""

_CLAIM = """
CREATE FUNCTION {s}.claim(given_us bigint, wanted_claim text, new_owner text, queues text[], lanes text[], priorities integer[],
  guaranteed bigint[], by_age boolean[], floors_us bigint[], known_bumps bigint, total bigint, lease_us bigint,
  is_unusual boolean, ready_most bigint, memory_us bigint)
RETURNS SETOF {s}.claimed LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  at_us bigint := {s}.now_us(given_us);
  asks integer := cardinality(queues);
  paused text[];
  is_grouped boolean;
  unusual boolean := is_unusual;
  bumps bigint;
  notes bigint;
  floors bigint[] := floors_us;
  available bigint[] := array_fill(0::bigint, ARRAY[cardinality(queues)]);
  takes bigint[];
  lively integer[] := '{}';
  has_due boolean;
  planned bigint := 0;
  found_jobs bigint := 0;
  taken bigint;
  listed text[];
  passed text[] := '{}';
  answer {s}.claimed;
  most bigint;
  i integer;
BEGIN
  PERFORM {s}.lock_claim(wanted_claim);
  SELECT coalesce(sum(t.jobs), 0), count(*), ARRAY(SELECT q.queue FROM {s}.queues q WHERE q.paused),
    EXISTS (SELECT 1 FROM {s}.grouped g WHERE g.queue = ANY (queues))
  INTO bumps, notes, paused, is_grouped FROM {s}.tallies t WHERE t.status = 'past';
  answer.created_at_us := at_us;
  IF is_grouped THEN
    answer.cancel_requested := true;
    RETURN NEXT answer;
    RETURN;
  END IF;
  IF notes > 100 THEN
    PERFORM {s}.compact_tallies();
  END IF;
  IF bumps <> known_bumps THEN
    floors := array_fill(0::bigint, ARRAY[asks]);  -- Somebody has put a job behind them.
  END IF;
  IF EXISTS (SELECT 1 FROM {s}.claims c WHERE c.claim_id = wanted_claim) THEN
    RETURN QUERY SELECT <sent again> FROM {s}.jobs j WHERE j.status = 'processing' AND j.claim_id = wanted_claim;
    GET DIAGNOSTICS found_jobs = ROW_COUNT;
  ELSE
    IF true = ANY (by_age) THEN
      PERFORM {s}.mark_ready(at_us, queues, lanes, priorities, by_age, paused, ready_most);
    END IF;
    FOR i IN 1..asks LOOP
      IF NOT by_age[i] AND EXISTS (
        SELECT 1 FROM {s}.jobs j WHERE j.status = 'pending' AND j.ready AND j.queue = queues[i] AND j.priority = priorities[i]
      ) THEN
        -- The strategy of the queue was changed. Its marked jobs are served by their time, and lose the mark.
        unusual := true;
      END IF;
    END LOOP;
    IF unusual THEN
      FOR i IN 1..5 LOOP
        listed := {s}.list_slowly(at_us, queues, lanes, priorities, guaranteed, by_age, paused, total - found_jobs, passed, ready_most);
        EXIT WHEN cardinality(listed) = 0;
        RETURN QUERY SELECT * FROM {s}.take_listed(at_us, listed, wanted_claim, new_owner, lease_us, i * 1000000000::bigint);
        GET DIAGNOSTICS taken = ROW_COUNT;
        found_jobs := found_jobs + taken;
        passed := passed || listed;
        EXIT WHEN found_jobs >= total OR taken = cardinality(listed);
      END LOOP;
      PERFORM {s}.unmark(queues, priorities, by_age, ready_most);
    ELSE
      FOR i IN 1..asks LOOP
        IF queues[i] = ANY (paused) THEN
          CONTINUE;
        ELSIF by_age[i] THEN
          has_due := EXISTS (
            SELECT 1 FROM {s}.jobs j WHERE j.status = 'pending' AND j.ready AND j.queue = queues[i] AND j.priority = priorities[i]
              AND (lanes[i] IS NULL OR j.lane = lanes[i]) AND j.run_at_us <= at_us);
        ELSE
          has_due := EXISTS (
            SELECT 1 FROM {s}.jobs j WHERE j.status = 'pending' AND NOT j.ready AND j.job_group IS NULL AND j.queue = queues[i]
              AND j.lane = lanes[i] AND j.priority = priorities[i] AND j.run_at_us <= at_us AND j.run_at_us >= floors[i]);
        END IF;
        IF has_due THEN
          lively := lively || i;
          available[i] := total;
        END IF;
      END LOOP;
      IF cardinality(lively) > 1 THEN
        FOREACH i IN ARRAY lively LOOP
          IF by_age[i] THEN
            available[i] := (SELECT count(*) FROM (
              SELECT 1 FROM {s}.jobs j WHERE j.status = 'pending' AND j.ready AND j.queue = queues[i] AND j.priority = priorities[i]
                AND (lanes[i] IS NULL OR j.lane = lanes[i]) AND j.run_at_us <= at_us
              ORDER BY j.created_at_us, j.id LIMIT total) AS n);
          ELSE
            available[i] := (SELECT count(*) FROM (
              SELECT 1 FROM {s}.jobs j WHERE j.status = 'pending' AND NOT j.ready AND j.job_group IS NULL AND j.queue = queues[i]
                AND j.lane = lanes[i] AND j.priority = priorities[i] AND j.run_at_us <= at_us AND j.run_at_us >= floors[i]
              ORDER BY j.run_at_us, j.id LIMIT total) AS n);
          END IF;
        END LOOP;
      END IF;
      takes := {s}.allot(total, guaranteed, available, queues, lanes);
      FOR turn IN 1..2 LOOP
        FOR i IN 1..asks LOOP
          IF turn = 1 THEN
            most := takes[i];
            planned := planned + most;
          ELSE
            most := CASE WHEN queues[i] = ANY (paused) THEN 0 ELSE total - found_jobs END;
          END IF;
          CONTINUE WHEN most <= 0;
          -- Rows are locked in the order of the line, and never waited for.
          IF by_age[i] THEN
            RETURN QUERY
            WITH due AS MATERIALIZED (
              SELECT d.ctid AS tid FROM {s}.jobs d WHERE d.status = 'pending' AND d.ready AND d.queue = queues[i]
                AND d.priority = priorities[i] AND (lanes[i] IS NULL OR d.lane = lanes[i]) AND d.run_at_us <= at_us
              ORDER BY d.created_at_us, d.id LIMIT most FOR UPDATE SKIP LOCKED)
            UPDATE {s}.jobs j SET status = 'processing', due_us = j.run_at_us, run_at_us = NULL, ready = false, fence = j.fence + 1,
              attempts = j.attempts + 1, claim_id = wanted_claim, lease_owner = new_owner, lease_expires_at_us = at_us + lease_us,
              updated_at_us = at_us
            FROM due WHERE j.ctid = due.tid RETURNING <sent>;
          ELSE
            RETURN QUERY
            WITH due AS MATERIALIZED (
              SELECT d.ctid AS tid FROM {s}.jobs d WHERE d.status = 'pending' AND NOT d.ready AND d.job_group IS NULL
                AND d.queue = queues[i] AND d.lane = lanes[i] AND d.priority = priorities[i] AND d.run_at_us <= at_us
                AND d.run_at_us >= floors[i]
              ORDER BY d.run_at_us, d.id LIMIT most FOR UPDATE SKIP LOCKED)
            UPDATE {s}.jobs j SET status = 'processing', due_us = j.run_at_us, run_at_us = NULL, fence = j.fence + 1,
              attempts = j.attempts + 1, claim_id = wanted_claim, lease_owner = new_owner, lease_expires_at_us = at_us + lease_us,
              updated_at_us = at_us
            FROM due WHERE j.ctid = due.tid RETURNING <sent>;
          END IF;
          GET DIAGNOSTICS taken = ROW_COUNT;
          found_jobs := found_jobs + taken;
        END LOOP;
        -- Where other claimers were quicker, whatever else is due may fill the rest.
        EXIT WHEN found_jobs >= planned OR cardinality(lively) <= 1;
      END LOOP;
    END IF;
    IF found_jobs > 0 THEN
      INSERT INTO {s}.claims (claim_id, at_us) VALUES (wanted_claim, at_us);
      IF random() < 0.02 THEN
        PERFORM {s}.forget_claims(at_us - memory_us);
      END IF;
    END IF;
  END IF;
  answer.fence := bumps;
  IF found_jobs < total THEN
    answer.due_us := {s}.next_due(at_us, queues, paused);
  END IF;
  RETURN NEXT answer;
END
$$
""".replace("<sent>", _SENT).replace("<sent again>", _SENT_AGAIN)

_UNMARK = """
CREATE FUNCTION {s}.unmark(queues text[], priorities integer[], by_age boolean[], most bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  wanted record;
BEGIN
  FOR wanted IN
    SELECT DISTINCT a.queue, a.priority FROM unnest(queues, priorities, by_age) AS a(queue, priority, is_by_age)
    WHERE NOT a.is_by_age AND NOT EXISTS (
      -- A queue that is asked for in both orders at once keeps its marks.
      SELECT 1 FROM unnest(queues, priorities, by_age) AS b(queue, priority, is_by_age)
      WHERE b.is_by_age AND b.queue = a.queue AND b.priority = a.priority)
  LOOP
    WITH marked AS MATERIALIZED (
      SELECT m.ctid AS tid FROM {s}.jobs m WHERE m.status = 'pending' AND m.ready AND m.queue = wanted.queue
        AND m.priority = wanted.priority
      LIMIT most FOR UPDATE SKIP LOCKED)
    UPDATE {s}.jobs j SET ready = false FROM marked WHERE j.ctid = marked.tid;
    IF FOUND THEN
      PERFORM {s}.note_past();
    END IF;
  END LOOP;
END
$$
"""

_FORGET = """
CREATE FUNCTION {s}.forget_claims(before_us bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
  DELETE FROM {s}.claims c WHERE c.claim_id = ANY (ARRAY(
    SELECT o.claim_id FROM {s}.claims o WHERE o.at_us < before_us ORDER BY o.at_us LIMIT 500 FOR UPDATE SKIP LOCKED))
$$
"""

CLAIM_FUNCTIONS: tuple[str, ...] = (_CLAIMED, ALLOT, _MARK, _LIST, _NEXT_DUE, _TAKE_LISTED, _UNMARK, _FORGET, _LOCK, _CLAIM)
