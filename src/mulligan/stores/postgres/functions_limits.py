"""Limits of the whole fleet inside the server: who may count them, what is counted, and what is written (core/limits has the rules).

Whoever counts slots or reads a bucket in order to take from it does so alone: it holds an advisory lock for each limit until its commit.
Everything is read by statements that begin after the locks are held, so each sees what those before it have written.

A slot is free again when the lease it was held under has ended. A renewal that was under way at that moment may still bring the lease back
to life, and it takes no such lock; so an ended lease counts as ended only if its row can be locked (`occupied`). From then on a renewal
waits for that lock, sees that the lease has ended, and goes to `renew_ended`, which counts under the locks like a claim.
"""

from __future__ import annotations

# The locks of a call, sorted by the caller, so that no two wait for each other. A shared one keeps out only those who want it alone.
_LOCK = """
CREATE FUNCTION {s}.lock_limits(names text[], are_shared boolean[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  FOR i IN 1..coalesce(cardinality(names), 0) LOOP
    IF are_shared[i] THEN
      PERFORM pg_advisory_xact_lock_shared(hashtextextended('mulligan limit {s} ' || names[i], 0));
    ELSE
      PERFORM pg_advisory_xact_lock(hashtextextended('mulligan limit {s} ' || names[i], 0));
    END IF;
  END LOOP;
END
$$
"""

# How many slots of a scope are taken: all its rows but those whose lease has ended and stays so. A row that somebody else is writing to,
# or has written to since the statement began, is counted: it may have been renewed.
_OCCUPIED = """
CREATE FUNCTION {s}.occupied(at_us bigint, wanted_queue text, wanted_lane text, wanted_key text) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  lanes text[] := CASE WHEN wanted_lane IS NULL THEN ARRAY['fresh', 'retry'] ELSE ARRAY[wanted_lane] END;
  jobs bigint;
BEGIN
  IF wanted_key IS NOT NULL THEN
    SELECT count(*) - (
      SELECT count(*) FROM (
        SELECT 1 FROM {s}.jobs e WHERE e.concurrency_key IS NOT NULL AND e.lease_expires_at_us IS NOT NULL AND e.queue = wanted_queue
          AND e.concurrency_key = wanted_key AND e.lease_expires_at_us <= at_us AND e.lane = ANY (lanes)
        FOR NO KEY UPDATE SKIP LOCKED) AS f)
    INTO jobs FROM {s}.jobs j WHERE j.concurrency_key IS NOT NULL AND j.lease_expires_at_us IS NOT NULL AND j.queue = wanted_queue
      AND j.concurrency_key = wanted_key AND j.lane = ANY (lanes);
  ELSE
    SELECT count(*) - (
      SELECT count(*) FROM (
        SELECT 1 FROM {s}.jobs e WHERE e.slots IS NOT NULL AND e.queue = wanted_queue AND e.lane = ANY (lanes)
          AND e.lease_expires_at_us <= at_us
        FOR NO KEY UPDATE SKIP LOCKED) AS f)
    INTO jobs FROM {s}.jobs j WHERE j.slots IS NOT NULL AND j.queue = wanted_queue AND j.lane = ANY (lanes);
  END IF;
  RETURN jobs;
END
$$
"""

# What a claim must know of its limits: the taken slots of each scope, by its place, and the levels of the buckets that are stored.
_COUNT = """
CREATE FUNCTION {s}.count_limits(at_us bigint, queues text[], lanes text[], keys text[], bucket_keys text[])
RETURNS TABLE (place bigint, jobs bigint, bucket text, level_u bigint, level_at_us bigint) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  FOR i IN 1..coalesce(cardinality(queues), 0) LOOP
    RETURN QUERY SELECT i::bigint, {s}.occupied(at_us, queues[i], lanes[i], keys[i]), NULL::text, NULL::bigint, NULL::bigint;
  END LOOP;
  IF cardinality(bucket_keys) > 0 THEN
    RETURN QUERY SELECT NULL::bigint, NULL::bigint, b.key, b.level_u, b.at_us FROM {s}.buckets b WHERE b.key = ANY (bucket_keys);
  END IF;
END
$$
"""

# Now and then buckets that nobody has touched for long are forgotten; those somebody is writing to are passed over.
_WRITE_LEVELS = """
CREATE FUNCTION {s}.write_levels(new_at_us bigint, keys text[], levels_u bigint[], memory_us bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
  IF coalesce(cardinality(keys), 0) = 0 THEN
    RETURN;
  END IF;
  INSERT INTO {s}.buckets (key, level_u, at_us) SELECT v.key, v.level_u, new_at_us FROM unnest(keys, levels_u) AS v(key, level_u)
  ON CONFLICT (key) DO UPDATE SET level_u = excluded.level_u, at_us = excluded.at_us;
  IF random() < 0.001 THEN
    PERFORM {s}.forget_buckets(new_at_us - memory_us);
  END IF;
END
$$
"""
_FORGET = """
CREATE FUNCTION {s}.forget_buckets(before_us bigint) RETURNS void LANGUAGE sql VOLATILE AS $$
  DELETE FROM {s}.buckets b WHERE b.key = ANY (ARRAY(
    SELECT o.key FROM {s}.buckets o WHERE o.at_us < before_us LIMIT 1000 FOR UPDATE SKIP LOCKED))
$$
"""

# Judges grips in the order of the call, each seeing those renewed before it. `scope_grips` says which grip (counted from 1) a scope is of.
# The rows are locked in the order of ids, like everywhere.
_RENEW_ENDED = """
CREATE FUNCTION {s}.renew_ended(given_us bigint, lock_names text[], ids text[], fences bigint[], lease_us bigint, scope_grips integer[],
  scope_queues text[], scope_lanes text[], scope_keys text[], scope_mosts bigint[])
RETURNS TABLE (id text, fence bigint, cancel_requested boolean) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  at_us bigint;
  ended boolean;
  is_free boolean;
BEGIN
  PERFORM {s}.lock_limits(lock_names, array_fill(false, ARRAY[cardinality(lock_names)]));
  PERFORM 1 FROM (SELECT u.id FROM unnest(ids) AS u(id) ORDER BY u.id COLLATE "C") AS v,
    LATERAL (SELECT 1 FROM {s}.jobs k WHERE k.id = v.id FOR UPDATE) AS l;
  at_us := {s}.now_us(given_us);
  FOR i IN 1..cardinality(ids) LOOP
    SELECT j.lease_expires_at_us <= at_us INTO ended FROM {s}.jobs j
    WHERE j.id = ids[i] AND j.fence = fences[i] AND j.status || '' = 'processing';
    CONTINUE WHEN NOT FOUND;
    is_free := true;
    IF ended THEN
      FOR n IN 1..coalesce(cardinality(scope_grips), 0) LOOP
        IF is_free AND scope_grips[n] = i THEN
          is_free := {s}.occupied(at_us, scope_queues[n], scope_lanes[n], scope_keys[n]) < scope_mosts[n];
        END IF;
      END LOOP;
    END IF;
    CONTINUE WHEN NOT is_free;
    RETURN QUERY UPDATE {s}.jobs AS j SET lease_expires_at_us = at_us + lease_us WHERE j.id = ids[i]
    RETURNING j.id, j.fence, j.cancel_requested;
  END LOOP;
END
$$
"""

# A note is written over the version that was read. The loop ends: where a row could not be inserted, the next look finds one.
_PUT_NOTE = """
CREATE FUNCTION {s}.put_note(given_us bigint, wanted_key text, new_body text, known_version bigint)
RETURNS SETOF {s}.notes LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  known {s}.notes;
BEGIN
  LOOP
    SELECT * INTO known FROM {s}.notes n WHERE n.key = wanted_key FOR UPDATE;
    IF FOUND THEN
      IF known.version = known_version + 1 AND known.body = new_body THEN
        RETURN NEXT known;
      ELSIF known.version = known_version THEN
        RETURN QUERY UPDATE {s}.notes n SET body = new_body, version = known_version + 1, updated_at_us = {s}.now_us(given_us)
        WHERE n.key = wanted_key RETURNING n.*;
      END IF;
      RETURN;
    ELSIF known_version <> 0 THEN
      RETURN;
    END IF;
    RETURN QUERY INSERT INTO {s}.notes AS n (key, body, version, updated_at_us) VALUES (wanted_key, new_body, 1, {s}.now_us(given_us))
    ON CONFLICT DO NOTHING RETURNING n.*;
    EXIT WHEN FOUND;
  END LOOP;
END
$$
"""

LIMIT_FUNCTIONS: tuple[str, ...] = (_LOCK, _OCCUPIED, _COUNT, _FORGET, _WRITE_LEVELS, _RENEW_ENDED, _PUT_NOTE)
