"""The server's side of a claim where limits or groups have a say (careful.py): listing what waits, and taking what was chosen of it.

`list_lines` answers rows of several kinds: 'now' (the time), 'repeat' (the claim was made before; nothing more was done), 'grouped' (a
queue with groups), 'due' (when the next job falls due), 'job' (one that may be taken), and those of a way round groups
(functions_rounds.py).
"""

from __future__ import annotations

# The first due jobs of one lane that have no group. `window` of them are looked at by their time: in the order of creation that is more
# than are wanted, because the order cannot be had from the index. `is_marked`: jobs have marks for claims in the order of creation.
_LINE = """
CREATE FUNCTION {s}.list_line(at_us bigint, wanted_queue text, wanted_lane text, wanted_priority integer, is_by_age boolean,
  is_marked boolean, total bigint, window_most bigint, passed text[])
RETURNS TABLE (place_us bigint, id text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
  IF NOT is_by_age AND NOT is_marked THEN
    RETURN QUERY
    SELECT d.run_at_us, d.id FROM {s}.jobs d WHERE d.status = 'pending' AND NOT d.ready AND d.job_group IS NULL AND d.queue = wanted_queue
      AND d.lane = wanted_lane AND d.priority = wanted_priority AND d.run_at_us <= at_us AND d.id <> ALL (passed)
    ORDER BY d.run_at_us, d.id LIMIT total;
    RETURN;
  END IF;
  RETURN QUERY
  SELECT CASE WHEN is_by_age THEN u.created_at_us ELSE u.run_at_us END, u.id FROM (
    (SELECT d.run_at_us, d.created_at_us, d.id FROM {s}.jobs d WHERE d.status = 'pending' AND NOT d.ready AND d.job_group IS NULL
       AND d.queue = wanted_queue AND d.lane = wanted_lane AND d.priority = wanted_priority AND d.run_at_us <= at_us
       AND d.id <> ALL (passed)
     ORDER BY d.run_at_us, d.id LIMIT window_most)
    UNION ALL
    (SELECT m.run_at_us, m.created_at_us, m.id FROM {s}.jobs m WHERE is_marked AND m.status = 'pending' AND m.ready
       AND m.queue = wanted_queue AND m.priority = wanted_priority AND m.lane = wanted_lane AND m.run_at_us <= at_us
       AND m.id <> ALL (passed)
     ORDER BY m.created_at_us, m.id LIMIT window_most)) AS u
  ORDER BY 1, 2 LIMIT total;
END
$$
"""

# When the next job of these queues falls due: of those without a group, and of those with one.
_NEXT_DUE = """
CREATE FUNCTION {s}.next_due_of_all(at_us bigint, queues text[], paused text[]) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
  RETURN least({s}.next_due(at_us, queues, paused), (
    SELECT min((
      SELECT j.run_at_us FROM {s}.jobs j WHERE j.status = 'pending' AND coalesce(j.job_group, '') <> '' AND j.queue = q.queue
        AND j.lane = l.lane AND j.priority = p.priority AND j.run_at_us > at_us ORDER BY j.run_at_us LIMIT 1))
    FROM (SELECT DISTINCT d.queue FROM unnest(queues) AS d(queue) WHERE d.queue <> ALL (paused)) AS q,
      unnest(ARRAY['fresh', 'retry']) AS l(lane), unnest(ARRAY[0, 1, 2]) AS p(priority)));
END
$$
"""

# Locks the limits, takes the time, and lists per ask and lane: jobs without a group, then groups in their turn. `marking` are the asks
# that are served from the marked jobs, both lanes at once; the caller has seen to it that no limit tells these lanes apart. A further
# look of the same claim has no locks to wait for, brings its time along, and leaves out the jobs that it could not have (`passed`).
_LINES = """
CREATE FUNCTION {s}.list_lines(given_us bigint, wanted_claim text, lock_names text[], are_shared boolean[], queues text[], lanes text[],
  priorities integer[], by_age boolean[], marking boolean[], behind text[], top text, total bigint, oldest_most bigint, newest_most bigint,
  groups_most bigint, tenants_most bigint, visits_most bigint, share bigint, window_most bigint, passed text[])
RETURNS TABLE (kind text, ask integer, lane text, job_group text, place_us bigint, id text) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  at_us bigint;
  paused text[];
  grouped text[];
  is_marked boolean[] := array_fill(false, ARRAY[cardinality(queues)]);
  wanted_lane text;
BEGIN
  PERFORM {s}.lock_claim(wanted_claim);
  PERFORM {s}.lock_limits(lock_names, are_shared);
  at_us := {s}.now_us(given_us);
  SELECT ARRAY(SELECT q.queue FROM {s}.queues q WHERE q.paused), ARRAY(SELECT g.queue FROM {s}.grouped g WHERE g.queue = ANY (queues))
  INTO paused, grouped;
  RETURN QUERY SELECT 'now', NULL::integer, NULL, NULL, at_us, NULL;
  RETURN QUERY SELECT 'grouped', NULL::integer, NULL, g.queue, NULL::bigint, NULL FROM unnest(grouped) AS g(queue);
  RETURN QUERY SELECT 'due', NULL::integer, NULL, NULL, {s}.next_due_of_all(at_us, queues, paused), NULL;
  IF EXISTS (SELECT 1 FROM {s}.claims c WHERE c.claim_id = wanted_claim) THEN
    RETURN QUERY SELECT 'repeat', NULL::integer, NULL, NULL, NULL::bigint, NULL;
    RETURN;
  END IF;
  IF true = ANY (marking) THEN
    PERFORM {s}.mark_ready(at_us, queues, lanes, priorities, marking, paused, window_most);
  END IF;
  FOR i IN 1..cardinality(queues) LOOP
    is_marked[i] := NOT marking[i] AND EXISTS (
      SELECT 1 FROM {s}.jobs j WHERE j.status = 'pending' AND j.ready AND j.queue = queues[i] AND j.priority = priorities[i]);
  END LOOP;
  IF true = ANY (is_marked) THEN
    PERFORM {s}.unmark(queues, priorities, marking, window_most);
  END IF;
  FOR i IN 1..cardinality(queues) LOOP
    CONTINUE WHEN queues[i] = ANY (paused);
    IF marking[i] THEN
      RETURN QUERY
      SELECT 'job', i, m.lane, NULL, m.created_at_us, m.id FROM {s}.jobs m WHERE m.status = 'pending' AND m.ready AND m.queue = queues[i]
        AND m.priority = priorities[i] AND (lanes[i] IS NULL OR m.lane = lanes[i]) AND m.run_at_us <= at_us AND m.id <> ALL (passed)
      ORDER BY m.created_at_us, m.id LIMIT total;
    END IF;
    FOREACH wanted_lane IN ARRAY CASE WHEN lanes[i] IS NULL THEN ARRAY['fresh', 'retry'] ELSE ARRAY[lanes[i]] END LOOP
      IF NOT marking[i] THEN
        RETURN QUERY
        SELECT 'job', i, wanted_lane, NULL, w.place_us, w.id
        FROM {s}.list_line(at_us, queues[i], wanted_lane, priorities[i], by_age[i], is_marked[i], total, window_most, passed) AS w;
      END IF;
      IF queues[i] = ANY (grouped) THEN
        RETURN QUERY
        SELECT w.kind, i, wanted_lane, w.job_group, w.place_us, w.id
        FROM {s}.list_round(at_us, queues[i], wanted_lane, priorities[i], by_age[i], behind[i], top, total, oldest_most, newest_most,
          groups_most, tenants_most, visits_most, share, window_most, passed) AS w;
      END IF;
    END LOOP;
  END LOOP;
END
$$
"""

# Takes what was chosen, as far as it still waits where it was listed and nobody else has it locked. The levels are those of the buckets
# if all are taken; otherwise the caller must write others. `is_known`: an earlier step of the same claim has taken something.
_TAKE = """
CREATE FUNCTION {s}.take_chosen(at_us bigint, wanted_claim text, is_known boolean, new_owner text, lease_us bigint, ids text[],
  lanes text[], slot_texts text[], first_place bigint, memory_us bigint, bucket_keys text[], levels_u bigint[], bucket_memory_us bigint)
RETURNS SETOF {s}.jobs LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  taken bigint;
BEGIN
  RETURN QUERY
  WITH locked AS MATERIALIZED (
    SELECT l.tid, v.place, v.slots FROM unnest(ids, lanes, slot_texts) WITH ORDINALITY AS v(id, lane, slots, place),
      LATERAL (SELECT k.ctid AS tid, k.status, k.lane, k.run_at_us FROM {s}.jobs k WHERE k.id = v.id FOR UPDATE SKIP LOCKED) AS l
    WHERE l.status = 'pending' AND l.lane = v.lane AND l.run_at_us <= at_us)
  UPDATE {s}.jobs j SET status = 'processing', due_us = j.run_at_us, run_at_us = NULL, ready = false, fence = j.fence + 1,
    attempts = j.attempts + 1, claim_id = wanted_claim, claim_place = first_place + locked.place, lease_owner = new_owner,
    lease_expires_at_us = at_us + lease_us, updated_at_us = at_us, slots = locked.slots
  FROM locked WHERE j.ctid = locked.tid RETURNING j.*;
  GET DIAGNOSTICS taken = ROW_COUNT;
  IF taken > 0 AND NOT is_known THEN
    INSERT INTO {s}.claims (claim_id, at_us) VALUES (wanted_claim, at_us);
    IF random() < 0.02 THEN
      PERFORM {s}.forget_claims(at_us - memory_us);
    END IF;
  END IF;
  IF taken = cardinality(ids) THEN
    PERFORM {s}.write_levels(at_us, bucket_keys, levels_u, bucket_memory_us);
  END IF;
END
$$
"""

CAREFUL_FUNCTIONS: tuple[str, ...] = (_LINE, _NEXT_DUE, _LINES, _TAKE)
