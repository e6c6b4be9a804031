"""The functions of the event log. They set the planner's switches for themselves, as those that write jobs do (functions_write.py): of a
log that is full they look at few entries, even where the statistics still say that it is empty.
"""

from __future__ import annotations

# The last step of a transaction: whoever has the lock commits before the next one gets a number, so numbers become visible in order.
# Entries wholly beyond the bound are removed; what is too much of the oldest one is not read.
_ADD_EVENTS = """
CREATE FUNCTION {s}.add_events(new_at_us bigint, entries text[], counts bigint[], keep bigint) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  newest bigint;
BEGIN
  IF coalesce(cardinality(entries), 0) = 0 THEN
    RETURN;
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('mulligan events {s}', 0));
  newest := coalesce((SELECT e.seq FROM {s}.events e ORDER BY e.seq DESC LIMIT 1), 0);
  INSERT INTO {s}.events (seq, many, at_us, bodies)
  SELECT newest + sum(n.many) OVER (ORDER BY n.place), n.many, new_at_us, n.bodies
  FROM unnest(entries, counts) WITH ORDINALITY AS n(bodies, many, place);
  DELETE FROM {s}.events e WHERE e.seq <= newest + (SELECT sum(n.many) FROM unnest(counts) AS n(many))::bigint - keep;
END
$$
"""

# Entries from the place after which to read (`after`), which may lie within the first of them, or before all there are.
_READ_EVENTS = """
CREATE FUNCTION {s}.read_events(after_seq bigint, most bigint, keep bigint)
RETURNS TABLE (seq bigint, many bigint, at_us bigint, bodies text, after bigint) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
  WITH a AS MATERIALIZED (SELECT greatest(after_seq, (SELECT n.seq FROM {s}.events n ORDER BY n.seq DESC LIMIT 1) - keep,
      (SELECT o.seq - o.many FROM {s}.events o ORDER BY o.seq LIMIT 1)) AS after)
  SELECT e.seq, e.many, e.at_us, e.bodies, (SELECT a.after FROM a) FROM {s}.events e
  WHERE e.seq > (SELECT a.after FROM a) AND e.seq - e.many < (SELECT a.after FROM a) + most ORDER BY e.seq LIMIT most
$$
"""

EVENT_FUNCTIONS: tuple[str, ...] = (_ADD_EVENTS, _READ_EVENTS)
