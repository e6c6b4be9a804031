"""Going round the groups of a line inside the server (core/ring has the rules).

Groups are found by skipping through their index: one probe finds the next group and its first job, so a visit costs the same whatever
waits in a group, and no claim makes more than a fixed number of them.

The answers are rows of these kinds: 'seen' (a group that was visited; place_us is 1 if it is due), 'cut' (there were more), 'heads' (how
many jobs of a group are listed at most), 'job' (one that may be taken).
"""

from __future__ import annotations

# core/ring.heads_of
_HEADS_OF = """
CREATE FUNCTION {s}.heads_of(total bigint, groups bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT greatest(1, least(total, (4 * total + greatest(1, groups) - 1) / greatest(1, groups)))
$$
"""

# The first due jobs of some groups of a line, group by group. In the order of creation no index has them: of all groups together,
# `window_most` jobs are sorted, those that fell due first.
_HEADS = """
CREATE FUNCTION {s}.list_heads(at_us bigint, wanted_queue text, wanted_lane text, wanted_priority integer, is_by_age boolean, names text[],
  heads bigint, window_most bigint, passed text[])
RETURNS TABLE (job_group text, place_us bigint, id text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  looked_at bigint := greatest(heads, window_most / greatest(1, cardinality(names)));
BEGIN
  IF is_by_age THEN
    RETURN QUERY
    SELECT g.name, h.created_at_us, h.id FROM unnest(names) WITH ORDINALITY AS g(name, turn), LATERAL (
      SELECT w.created_at_us, w.id FROM (
        SELECT k.created_at_us, k.id FROM {s}.jobs k WHERE k.status = 'pending' AND k.job_group IS NOT NULL AND k.queue = wanted_queue
          AND k.lane = wanted_lane AND k.priority = wanted_priority AND k.job_group = g.name AND k.run_at_us <= at_us
          AND k.id <> ALL (passed)
        ORDER BY k.run_at_us, k.id LIMIT looked_at) AS w
      ORDER BY w.created_at_us, w.id LIMIT heads) AS h
    ORDER BY g.turn, h.created_at_us, h.id;
    RETURN;
  END IF;
  RETURN QUERY
  SELECT g.name, h.run_at_us, h.id FROM unnest(names) WITH ORDINALITY AS g(name, turn), LATERAL (
    SELECT k.run_at_us, k.id FROM {s}.jobs k WHERE k.status = 'pending' AND k.job_group IS NOT NULL AND k.queue = wanted_queue
      AND k.lane = wanted_lane AND k.priority = wanted_priority AND k.job_group = g.name AND k.run_at_us <= at_us
      AND k.id <> ALL (passed)
    ORDER BY k.run_at_us, k.id LIMIT heads) AS h
  ORDER BY g.turn, h.run_at_us, h.id;
END
$$
"""

# Visits groups along an arc, those behind `start` up to `high`, then those behind `low` up to `until`, and lists the due ones. The last row
# of `ring` may be one beyond the bounds, which is not visited, and tells that there are more. If hardly any are due among many, those of
# `oldest` are listed as well, and those of `newest` in any case.
_WALK = """
CREATE FUNCTION {s}.walk_groups(at_us bigint, wanted_queue text, wanted_lane text, wanted_priority integer, is_by_age boolean, start text,
  high text, low text, until text, groups_most bigint, tenants_most bigint, visits_most bigint, share bigint, total bigint,
  window_most bigint, passed text[], oldest text[], newest text[])
RETURNS TABLE (kind text, job_group text, place_us bigint, id text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  names text[];
  are_due boolean[];
  due text[];
  is_cut boolean;
  heads bigint;
BEGIN
  WITH RECURSIVE ring (job_group, first_us, is_second, visits, groups, tenants, tenant, of_tenant, is_beyond) AS (
    SELECT start COLLATE "C", NULL::bigint, false, 0::bigint, 0::bigint, 0::bigint, NULL::text COLLATE "C", 0::bigint, false
    UNION ALL
    SELECT n.job_group, n.first_us, n.is_second, r.visits + 1, r.groups + CASE WHEN n.first_us <= at_us THEN 1 ELSE 0 END,
      r.tenants + CASE WHEN t.is_new THEN 1 ELSE 0 END, t.tenant, CASE WHEN t.is_new THEN 1 ELSE r.of_tenant + 1 END,
      (t.is_new OR share = 0) AND (r.visits >= visits_most OR (r.groups >= groups_most AND r.tenants >= tenants_most))
    FROM ring r, LATERAL (
      SELECT CASE WHEN r.of_tenant = share AND share > 0 THEN greatest(r.job_group, r.tenant || ' ') ELSE r.job_group END
        COLLATE "C" AS place) AS p, LATERAL (
      SELECT u.job_group, u.first_us, u.is_second FROM (
        (SELECT a.job_group, a.run_at_us AS first_us, false AS is_second FROM {s}.jobs a
         WHERE NOT r.is_second AND a.status = 'pending' AND a.job_group IS NOT NULL AND a.queue = wanted_queue AND a.lane = wanted_lane
           AND a.priority = wanted_priority AND a.job_group > p.place AND a.job_group <= high
         ORDER BY a.job_group, a.run_at_us, a.id LIMIT 1)
        UNION ALL
        (SELECT b.job_group, b.run_at_us, true FROM {s}.jobs b
         WHERE b.status = 'pending' AND b.job_group IS NOT NULL AND b.queue = wanted_queue AND b.lane = wanted_lane
           AND b.priority = wanted_priority AND b.job_group > CASE WHEN r.is_second THEN p.place ELSE low END AND b.job_group <= until
         ORDER BY b.job_group, b.run_at_us, b.id LIMIT 1)) AS u
      LIMIT 1) AS n, LATERAL (
      SELECT split_part(n.job_group, E'\\x1f', 1) AS tenant,
        n.is_second <> r.is_second OR split_part(n.job_group, E'\\x1f', 1) IS DISTINCT FROM r.tenant AS is_new) AS t
    WHERE NOT r.is_beyond
  )
  SELECT coalesce(array_agg(r.job_group ORDER BY r.visits) FILTER (WHERE NOT r.is_beyond), '{}'),
    coalesce(array_agg(r.first_us <= at_us ORDER BY r.visits) FILTER (WHERE NOT r.is_beyond), '{}'),
    coalesce(array_agg(r.job_group ORDER BY r.visits) FILTER (WHERE NOT r.is_beyond AND r.first_us <= at_us), '{}'),
    coalesce(bool_or(r.is_beyond), false)
  INTO names, are_due, due, is_cut FROM ring r WHERE r.visits > 0;
  IF is_cut AND cardinality(due) < tenants_most THEN
    due := due || oldest;
  END IF;
  due := ARRAY(SELECT DISTINCT o.name COLLATE "C" FROM unnest(due || newest) AS o(name));
  RETURN QUERY SELECT 'seen', v.name, v.is_due::integer::bigint, NULL FROM unnest(names, are_due) WITH ORDINALITY AS v(name, is_due, place)
  ORDER BY v.place;
  IF is_cut THEN
    RETURN QUERY SELECT 'cut', NULL, NULL::bigint, NULL;
  END IF;
  heads := {s}.heads_of(total, cardinality(due));
  RETURN QUERY SELECT 'heads', NULL, heads, NULL;
  RETURN QUERY
  SELECT 'job', h.job_group, h.place_us, h.id
  FROM {s}.list_heads(at_us, wanted_queue, wanted_lane, wanted_priority, is_by_age, due, heads, window_most, passed) AS h;
END
$$
"""

# One claim's way round a line, from behind a text round to it. Where no more than `oldest_most` jobs are due, they are listed, and nobody
# goes round.
_ROUND = """
CREATE FUNCTION {s}.list_round(at_us bigint, wanted_queue text, wanted_lane text, wanted_priority integer, is_by_age boolean, behind text,
  top text, total bigint, oldest_most bigint, newest_most bigint, groups_most bigint, tenants_most bigint, visits_most bigint, share bigint,
  window_most bigint, passed text[])
RETURNS TABLE (kind text, job_group text, place_us bigint, id text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  oldest text[] := ARRAY(
    SELECT j.job_group FROM {s}.jobs j WHERE j.status = 'pending' AND coalesce(j.job_group, '') <> '' AND j.queue = wanted_queue
      AND j.lane = wanted_lane AND j.priority = wanted_priority AND j.run_at_us <= at_us
    ORDER BY j.run_at_us LIMIT oldest_most + 1);
  newest text[] := '{}';
  names text[];
  heads bigint;
BEGIN
  IF cardinality(oldest) = 0 THEN
    RETURN;
  END IF;
  names := ARRAY(SELECT DISTINCT o.name COLLATE "C" FROM unnest(oldest) AS o(name));
  IF cardinality(oldest) <= oldest_most THEN
    heads := {s}.heads_of(total, cardinality(names));
    RETURN QUERY SELECT 'heads', NULL, heads, NULL;
    RETURN QUERY
    SELECT 'job', h.job_group, h.place_us, h.id
    FROM {s}.list_heads(at_us, wanted_queue, wanted_lane, wanted_priority, is_by_age, names, heads, window_most, passed) AS h;
    RETURN;
  END IF;
  IF newest_most > 0 THEN
    newest := ARRAY(
      SELECT j.job_group FROM {s}.jobs j WHERE j.status = 'pending' AND coalesce(j.job_group, '') <> '' AND j.queue = wanted_queue
        AND j.lane = wanted_lane AND j.priority = wanted_priority AND j.run_at_us <= at_us
      ORDER BY j.run_at_us DESC LIMIT newest_most);
  END IF;
  RETURN QUERY
  SELECT w.kind, w.job_group, w.place_us, w.id FROM {s}.walk_groups(at_us, wanted_queue, wanted_lane, wanted_priority, is_by_age, behind,
    top, '', behind, groups_most, tenants_most, visits_most, share, total, window_most, passed, names, newest) AS w;
END
$$
"""

# More of a way round, for the same claim: stretches of tenants with many groups. `place` says which one a row belongs to.
_STRETCHES = """
CREATE FUNCTION {s}.list_stretches(at_us bigint, queues text[], lanes text[], priorities integer[], by_age boolean[], starts text[],
  highs text[], lows text[], groups_most bigint[], visits_most bigint[], total bigint, window_most bigint, passed text[])
RETURNS TABLE (place integer, kind text, job_group text, place_us bigint, id text) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  FOR i IN 1..cardinality(queues) LOOP
    RETURN QUERY
    SELECT i, w.kind, w.job_group, w.place_us, w.id
    FROM {s}.walk_groups(at_us, queues[i], lanes[i], priorities[i], by_age[i], starts[i], highs[i], lows[i], starts[i],
      groups_most[i], 0, visits_most[i], 0, total, window_most, passed, '{}', '{}') AS w;
  END LOOP;
END
$$
"""

# More jobs of some groups, for the same claim.
_LONGER = """
CREATE FUNCTION {s}.list_longer(at_us bigint, queues text[], lanes text[], priorities integer[], by_age boolean[], names text[],
  total bigint, window_most bigint, passed text[])
RETURNS TABLE (place integer, place_us bigint, id text) LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  FOR i IN 1..cardinality(queues) LOOP
    RETURN QUERY
    SELECT i, h.place_us, h.id FROM {s}.list_heads(at_us, queues[i], lanes[i], priorities[i], by_age[i], ARRAY[names[i]], total,
      window_most / cardinality(queues), passed) AS h;
  END LOOP;
END
$$
"""

ROUND_FUNCTIONS: tuple[str, ...] = (_HEADS_OF, _HEADS, _WALK, _ROUND, _STRETCHES, _LONGER)
