"""The functions that write whole batches in one round trip: insert, settle, renew, and the tallies.

Each sets the planner's switches for itself, so that exactly one plan is left for every statement in it: along the index that the
statement was written for. Statistics (fresh, stale or absent), plan caches and poolers then change nothing. Batches come as arrays,
sorted by id by the caller: the array is the outer side of the join, so rows are locked in the order of ids.
"""

from __future__ import annotations

# The time of a call: a test's clock, or the server's.
_NOW = """
CREATE FUNCTION {s}.now_us(given_us bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(given_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$
"""

# Puts deltas together. Rows that another one works on are passed over; what is removed is exactly what is written again as a sum.
_COMPACT = """
CREATE FUNCTION {s}.compact_tallies() RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended('mulligan tallies {s}', 0)) THEN
    RETURN;
  END IF;
  WITH old AS (
    SELECT t.seq FROM {s}.tallies t ORDER BY t.seq LIMIT 20000 FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM {s}.tallies t USING old WHERE t.seq = old.seq RETURNING t.queue, t.status, t.jobs
  )
  INSERT INTO {s}.tallies (queue, status, jobs)
  SELECT g.queue, g.status, sum(g.jobs) FROM gone g GROUP BY g.queue, g.status HAVING sum(g.jobs) <> 0;
END
$$
"""

# Notes jobs that may lie behind the floor of somebody's claims. Claims add these notes up, so they must not become many.
_NOTE_PAST = """
CREATE FUNCTION {s}.note_past() RETURNS void LANGUAGE sql VOLATILE AS $$
  INSERT INTO {s}.tallies (queue, status, jobs) VALUES ('', 'past', 1)
$$
"""

# Notes queues that have jobs with groups from now on. Two may note one queue at once: both names stay, and nobody waits.
_NOTE_GROUPS = """
CREATE FUNCTION {s}.note_groups(queues text[]) RETURNS void LANGUAGE sql VOLATILE AS $$
  INSERT INTO {s}.grouped (queue)
  SELECT DISTINCT n.queue FROM unnest(queues) AS n(queue) WHERE NOT EXISTS (SELECT 1 FROM {s}.grouped g WHERE g.queue = n.queue)
$$
"""

# Answers the time and, unless all jobs are new, the id that stands for each of them. The loop ends: a job that was not stored met
# either a known id or a live owner of its key; an owner that came to rest in between leaves the key free for the next try.
_INSERT = """
CREATE FUNCTION {s}.insert_jobs(
  given_us bigint, ids text[], queues text[], tasks text[], payloads text[], policies text[], max_retries bigint[], priorities integer[],
  delays_us bigint[], etas_us bigint[], timeouts_us bigint[], max_ages_us bigint[], unique_keys text[], concurrency_keys text[],
  fair_keys text[], groups text[], tags text[], traces text[], schedules text[], ticks_us bigint[], is_late boolean,
  OUT at_us bigint, OUT answers text[]) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  added bigint;
  tries integer := 0;
BEGIN
  at_us := {s}.now_us(given_us);
  IF groups IS NOT NULL THEN
    PERFORM {s}.note_groups(ARRAY(SELECT g.queue FROM unnest(queues, groups) AS g(queue, job_group) WHERE g.job_group IS NOT NULL));
  END IF;
  LOOP
    INSERT INTO {s}.jobs AS j (id, queue, task, payload, policy, max_retries, priority, lane, status, run_at_us, created_at_us,
      updated_at_us, due_first_us, due_us, timeout_us, max_age_us, unique_key, concurrency_key, fair_key, job_group, tags, trace, schedule,
      tick_us)
    SELECT v.id, v.queue, v.task, v.payload, v.policy, v.max_retries, v.priority, 'fresh', 'pending',
      coalesce(v.eta_us, at_us + v.delay_us), at_us, at_us, coalesce(v.eta_us, at_us + v.delay_us),
      coalesce(v.eta_us, at_us + v.delay_us), v.timeout_us, v.max_age_us, v.unique_key, v.concurrency_key, v.fair_key, v.job_group,
      v.tags, v.trace, v.schedule, v.tick_us
    FROM unnest(ids, queues, tasks, payloads, policies, max_retries, priorities, delays_us, etas_us, timeouts_us, max_ages_us, unique_keys,
      concurrency_keys, fair_keys, groups, tags, traces, schedules, ticks_us)
      AS v(id, queue, task, payload, policy, max_retries, priority, delay_us, eta_us, timeout_us, max_age_us, unique_key,
      concurrency_key, fair_key, job_group, tags, trace, schedule, tick_us)
    WHERE answers IS NULL OR NOT EXISTS (SELECT 1 FROM {s}.jobs k WHERE k.id = v.id)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    EXIT WHEN answers IS NULL AND added = cardinality(ids);
    answers := ARRAY(
      SELECT coalesce(
        (SELECT k.id FROM {s}.jobs k WHERE k.id = v.id),
        (SELECT o.id FROM {s}.jobs o WHERE o.queue = v.queue AND o.unique_key = v.unique_key AND o.unique_key IS NOT NULL
           AND o.status IN ('pending', 'processing')))
      FROM unnest(ids, queues, unique_keys) WITH ORDINALITY AS v(id, queue, unique_key, place) ORDER BY v.place);
    EXIT WHEN array_position(answers, NULL) IS NULL;
    tries := tries + 1;
    IF tries >= 20 THEN
      RAISE EXCEPTION 'the owner of a unique key changes too quickly' USING ERRCODE = '40001';
    END IF;
  END LOOP;
  IF is_late OR EXISTS (SELECT 1 FROM unnest(etas_us) AS e(eta_us) WHERE e.eta_us < at_us) THEN
    PERFORM {s}.note_past();
    IF NOT is_late AND random() < 0.05 THEN  -- not in a transaction of the caller's own, which may be of another kind, and last
      PERFORM {s}.compact_tallies();
    END IF;
  END IF;
END
$$
"""

# The same for jobs that differ in nothing but their ids and payloads, and have nothing to look up. Most batches are like that. Rows that
# ON CONFLICT guards are written twice each, to be taken back if another's came first; without it a known id ends the whole statement.
# Then nothing is stored, and insert_jobs tells new and known ids apart. Ids and payloads come as one text each: both the driver and the
# server take less time for that than for an array with a value of its own for each job.
_INSERT_ALIKE = """
CREATE FUNCTION {s}.insert_alike(
  given_us bigint, ids text, payloads text, new_queue text, new_task text, new_policy text, new_max_retries bigint,
  new_priority integer, delay_us bigint, new_timeout_us bigint, new_max_age_us bigint, new_concurrency_key text, new_fair_key text,
  new_group text, new_tags text, new_trace text,
  OUT at_us bigint, OUT stored boolean) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  due_at_us bigint;
BEGIN
  at_us := {s}.now_us(given_us);
  due_at_us := at_us + delay_us;
  IF new_group IS NOT NULL THEN
    PERFORM {s}.note_groups(ARRAY[new_queue]);
  END IF;
  BEGIN
    INSERT INTO {s}.jobs AS j (id, queue, task, payload, policy, max_retries, priority, lane, status, run_at_us, created_at_us,
      updated_at_us, due_first_us, due_us, timeout_us, max_age_us, concurrency_key, fair_key, job_group, tags, trace)
    SELECT v.id, new_queue, new_task, v.payload, new_policy, new_max_retries, new_priority, 'fresh', 'pending', due_at_us, at_us,
      at_us, due_at_us, due_at_us, new_timeout_us, new_max_age_us, new_concurrency_key, new_fair_key, new_group, new_tags, new_trace
    FROM unnest(string_to_array(ids, ','), string_to_array(payloads, chr(10))) AS v(id, payload);
    stored := true;
  EXCEPTION WHEN unique_violation THEN
    stored := false;
  END;
END
$$
"""

# Locks the rows of a batch in the order of their ids, and shows what guards and answers need.
_STATES = """
CREATE FUNCTION {s}.lock_states(given_us bigint, ids text[])
RETURNS TABLE (at_us bigint, id text, queue text, unique_key text, status text, fence bigint, generation bigint, settle_id text,
  run_at_us bigint, lease_expires_at_us bigint, cancel_requested boolean, task text, attempts bigint) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  -- The rows first: waiting for their locks may take a while, and the time of a call is the time it writes.
  PERFORM 1 FROM unnest(ids) AS v(id), LATERAL (SELECT 1 FROM {s}.jobs j WHERE j.id = v.id FOR UPDATE) AS l;
  at_us := {s}.now_us(given_us);
  RETURN QUERY SELECT at_us, NULL, NULL, NULL, NULL, 0::bigint, 0::bigint, NULL, NULL::bigint, NULL::bigint, false, NULL, 0::bigint;
  RETURN QUERY
  SELECT at_us, j.id, j.queue, j.unique_key, j.status, j.fence, j.generation, j.settle_id, j.run_at_us, j.lease_expires_at_us,
    j.cancel_requested, j.task, j.attempts
  FROM unnest(ids) AS v(id), LATERAL (SELECT * FROM {s}.jobs k WHERE k.id = v.id OFFSET 0) AS j;
END
$$
"""

# Most columns of a batch are the same for most of its rows. They travel once per distinct combination (`kind`, counted from 1), so
# that few arrays have to be sent and unnested. Delays are drawn by chance: among the kinds they would make one of each row, and an
# element of an array of texts is found by going through those before it.
# The guards are compared with values of the batch, not with constants: `status = 'processing'` would let the planner start at the
# small index of the leases and search all of it for every row. Writes nothing where a guard does not hold.
# `id >= ... AND id <= ...` where `id = ...` is meant: an equality could also be joined the wrong way round, through the whole table in
# the order of ids, if an estimate of the table's size is old. Of this the only plan is to look up each job of the batch by its id.
# A job to be cancelled goes back to pending by an operator's requeue only. Whoever has looked at the row has seen to that.
_SETTLE = """
CREATE FUNCTION {s}.settle(
  given_us bigint, ids text[], fences bigint[], kinds integer[], errors text[], results text[], settle_ids text[],
  delays_us bigint[], last_delays_us bigint[], befores text[], afters text[], new_lanes text[], new_attempts bigint[],
  new_failures bigint[], new_crashes bigint[], new_snoozes bigint[], new_releases bigint[], generations bigint[],
  OUT at_us bigint, OUT written bigint) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  at_us := {s}.now_us(given_us);
  WITH applied AS (
    UPDATE {s}.jobs AS j SET
      status = afters[v.kind], lane = new_lanes[v.kind], run_at_us = at_us + v.delay_us, updated_at_us = at_us,
      finished_at_us = CASE WHEN afters[v.kind] <> 'pending' THEN at_us END,
      due_first_us = CASE WHEN befores[v.kind] = 'failed' AND afters[v.kind] = 'pending' THEN at_us + v.delay_us ELSE j.due_first_us END,
      due_us = coalesce(at_us + v.delay_us, j.due_us),
      attempts = new_attempts[v.kind], failures = new_failures[v.kind], crashes = new_crashes[v.kind], snoozes = new_snoozes[v.kind],
      releases = new_releases[v.kind], generation = generations[v.kind], last_delay_us = v.last_delay_us,
      last_error = v.error, result_json = v.result, settle_id = v.settle_id,
      cancel_requested = j.cancel_requested AND befores[v.kind] <> 'failed',
      ready = false, claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
    FROM unnest(ids, fences, kinds, errors, results, settle_ids, delays_us, last_delays_us)
      AS v(id, fence, kind, error, result, settle_id, delay_us, last_delay_us)
    WHERE j.id >= v.id AND j.id <= v.id AND j.status = befores[v.kind] AND j.fence = v.fence
      AND NOT (j.cancel_requested AND afters[v.kind] = 'pending' AND befores[v.kind] <> 'failed')
    RETURNING j.queue, v.kind
  ), counted AS (
    INSERT INTO {s}.tallies (queue, status, jobs)
    SELECT d.queue, d.status, sum(d.jobs) FROM (
      SELECT a.queue, afters[a.kind] AS status, 1 AS jobs FROM applied a WHERE afters[a.kind] NOT IN ('pending', 'processing')
      UNION ALL SELECT a.queue, befores[a.kind], -1 FROM applied a WHERE befores[a.kind] = 'failed') AS d
    GROUP BY d.queue, d.status
  )
  SELECT count(*) INTO written FROM applied;
  IF random() < 0.004 THEN
    PERFORM {s}.compact_tallies();
  END IF;
END
$$
"""

# A batch with what it leaves behind, all of it or nothing (`written` -1). What cannot be known before its time is left open in the texts
# by whoever made them: the times of events (entries.py) and the end of a record. It is written beside them, and put in by their readers.
# The error is caught here, so that no log of the server is full of it. What is of each job and a text comes joined, as for insert_alike;
# an empty text among the errors is none.
# As for successes, the time is that of the call: a row that another call holds for a moment is written that moment later. Where it was a
# long moment, retries may have come to lie behind the floors of claims (floors.py).
_SETTLE_WHOLE = """
CREATE FUNCTION {s}.settle_whole(
  given_us bigint, ids text, fences bigint[], kinds integer[], errors text, results text[], settle_ids text,
  delays_us bigint[], last_delays_us bigint[], befores text[], afters text[], new_lanes text[], new_attempts bigint[],
  new_failures bigint[], new_crashes bigint[], new_snoozes bigint[], new_releases bigint[], generations bigint[],
  recorded text, records text, long_lived text[], keep_records bigint, entries text[], counts bigint[], keep_events bigint,
  OUT at_us bigint, OUT written bigint) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  SELECT s.at_us, s.written INTO at_us, written FROM {s}.settle(given_us, string_to_array(ids, ','), fences, kinds,
    string_to_array(errors, chr(10), ''), results, string_to_array(settle_ids, ','), delays_us, last_delays_us,
    befores, afters, new_lanes, new_attempts, new_failures, new_crashes, new_snoozes, new_releases, generations) AS s;
  IF written <> cardinality(fences) THEN
    RAISE EXCEPTION 'not all of these jobs are held' USING ERRCODE = 'MQ001';
  END IF;
  PERFORM {s}.record(at_us, string_to_array(recorded, ','), string_to_array(records, chr(10)), long_lived, keep_records, entries,
    counts, keep_events);
  IF given_us IS NULL AND 'pending' = ANY (afters) AND {s}.now_us(NULL) - at_us > 500000 THEN  -- half the age of a floor
    PERFORM {s}.note_past();
  END IF;
EXCEPTION WHEN SQLSTATE 'MQ001' THEN
  written := -1;
END
$$
"""

# The same for successes of one queue whose fences and numbers are all the same. Most batches are like that. `results` is null where no
# job has any.
_SETTLE_ALIKE = """
CREATE FUNCTION {s}.settle_alike(
  given_us bigint, ids text, results text[], settle_ids text, held_queue text, held_fence bigint, new_lane text,
  new_attempts bigint, new_failures bigint, new_crashes bigint, new_snoozes bigint, new_releases bigint, new_generation bigint,
  new_last_delay_us bigint,
  OUT at_us bigint, OUT written bigint) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  held text := 'processing';  -- as in settle: not a constant
BEGIN
  at_us := {s}.now_us(given_us);
  UPDATE {s}.jobs AS j SET
    status = 'done', lane = new_lane, updated_at_us = at_us, finished_at_us = at_us,
    attempts = new_attempts, failures = new_failures, crashes = new_crashes, snoozes = new_snoozes, releases = new_releases,
    generation = new_generation, last_delay_us = new_last_delay_us, last_error = NULL, result_json = v.result, settle_id = v.settle_id,
    run_at_us = NULL, ready = false, claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
  FROM unnest(string_to_array(ids, ','), results, string_to_array(settle_ids, ',')) AS v(id, result, settle_id)
  WHERE j.id >= v.id AND j.id <= v.id AND j.fence = held_fence AND j.status = held AND j.queue = held_queue;
  GET DIAGNOSTICS written = ROW_COUNT;
  IF written > 0 THEN
    INSERT INTO {s}.tallies (queue, status, jobs) VALUES (held_queue, 'done', written);
  END IF;
  IF random() < 0.004 THEN
    PERFORM {s}.compact_tallies();
  END IF;
END
$$
"""

# What a settled batch leaves behind besides the rows: records of the histories, of which the newest are kept, and events.
_RECORD = """
CREATE FUNCTION {s}.record(at_us bigint, job_ids text[], records text[], long_lived text[], keep_records bigint, entries text[],
  counts bigint[], keep_events bigint)
RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  long_id text;
BEGIN
  INSERT INTO {s}.history (job_id, ended_at_us, record)
  SELECT r.job_id, at_us, r.record FROM unnest(job_ids, records) WITH ORDINALITY AS r(job_id, record, place) ORDER BY r.place;
  FOREACH long_id IN ARRAY long_lived LOOP
    DELETE FROM {s}.history h WHERE h.job_id = long_id
      AND h.seq <= (SELECT k.seq FROM {s}.history k WHERE k.job_id = long_id ORDER BY k.seq DESC LIMIT 1 OFFSET keep_records);
  END LOOP;
  PERFORM {s}.add_events(at_us, entries, counts, keep_events);
END
$$
"""

# Jobs under slots (core/limits) whose lease has ended must find them free: renew_ended judges those. Then all ended ones are left to it,
# because it goes by the order of the call. The time is taken under the locks: a lease that ends while somebody waits for them has ended.
_RENEW = """
CREATE FUNCTION {s}.renew(given_us bigint, ids text[], fences bigint[], lease_us bigint, worker_id text, worker text, memory_us bigint)
RETURNS TABLE (id text, fence bigint, cancel_requested boolean, is_left boolean, queue text, concurrency_key text, slots text)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  at_us bigint;
  first_end_us bigint;
  has_ended boolean;
  held text := 'processing';  -- as a constant it would let the planner go through the index of the leases for every job
BEGIN
  -- Locked first, so that they stay where they are.
  SELECT min(l.lease_expires_at_us) FILTER (WHERE l.slots IS NOT NULL) INTO first_end_us FROM unnest(ids) AS v(id),
    LATERAL (SELECT k.lease_expires_at_us, k.slots FROM {s}.jobs k WHERE k.id = v.id FOR UPDATE) AS l;
  at_us := {s}.now_us(given_us);
  has_ended := coalesce(first_end_us <= at_us, false);
  IF has_ended THEN
    RETURN QUERY
    SELECT j.id, j.fence, j.cancel_requested, true, j.queue, j.concurrency_key, j.slots
    FROM unnest(ids, fences) AS g(id, fence), LATERAL (SELECT * FROM {s}.jobs k WHERE k.id = g.id OFFSET 0) AS j
    WHERE j.fence = g.fence AND j.status = held AND j.lease_expires_at_us <= at_us;
  END IF;
  RETURN QUERY
  UPDATE {s}.jobs AS j SET lease_expires_at_us = at_us + lease_us
  FROM (
    SELECT g.fence, l.tid FROM unnest(ids, fences) AS g(id, fence),
      LATERAL (SELECT k.ctid AS tid FROM {s}.jobs k WHERE k.id = g.id OFFSET 0) AS l) AS v
  WHERE j.ctid = v.tid AND j.fence = v.fence AND j.status = held
    AND (NOT has_ended OR j.lease_expires_at_us IS NULL OR j.lease_expires_at_us > at_us)
  RETURNING j.id, j.fence, j.cancel_requested, false, NULL, NULL, NULL;
  IF worker_id IS NOT NULL THEN
    INSERT INTO {s}.workers AS w (id, seen_at_us, body) VALUES (worker_id, at_us, worker)
    ON CONFLICT (id) DO UPDATE SET seen_at_us = excluded.seen_at_us, body = excluded.body;
    DELETE FROM {s}.workers w WHERE w.seen_at_us < at_us - memory_us;
  END IF;
END
$$
"""

# Tags are text; a row whose tags cannot be read has none, instead of ending the whole query.
_HAS_TAG = """
CREATE FUNCTION {s}.has_tag(tags text, wanted text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN tags <> '[]' AND jsonb_typeof(tags::jsonb) = 'array' AND tags::jsonb ? wanted;
EXCEPTION WHEN data_exception THEN
  RETURN false;
END
$$
"""

WRITE_FUNCTIONS: tuple[str, ...] = (
    _NOW,
    _COMPACT,
    _NOTE_PAST,
    _NOTE_GROUPS,
    _INSERT,
    _INSERT_ALIKE,
    _STATES,
    _SETTLE,
    _SETTLE_ALIKE,
    _RECORD,
    _SETTLE_WHOLE,
    _RENEW,
    _HAS_TAG,
)
