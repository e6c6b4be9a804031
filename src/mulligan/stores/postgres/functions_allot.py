"""Sharing a claim's total among its asks, inside the server."""

from __future__ import annotations

# core/lending.allot, in the server. The tests hold the two against each other.
ALLOT = """
CREATE FUNCTION {s}.allot(total bigint, guaranteed bigint[], available bigint[], queues text[], lanes text[])
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  asks integer := coalesce(cardinality(guaranteed), 0);
  spare bigint := total;
  takes bigint[] := available;
  own bigint[] := guaranteed;
  lane_of integer[];
  queue_of integer[];
  amount bigint;
  extra bigint;
  share bigint;
  weights bigint[];
  weight bigint;
  round bigint;
  reached bigint;
  given bigint;
  is_open boolean;
  level integer;
  i integer;
  g integer;
  is_member boolean;
BEGIN
  IF asks = 0 OR (SELECT sum(a) FROM unnest(available) AS a) <= total THEN
    RETURN available;
  END IF;
  FOR i IN 1..asks LOOP
    own[i] := greatest(0, guaranteed[i]);
    takes[i] := least(own[i], available[i], spare);
    spare := spare - takes[i];
    queue_of[i] := array_position(queues, queues[i]);
    lane_of[i] := i;
    FOR g IN 1..i LOOP
      IF queues[g] = queues[i] AND lanes[g] IS NOT DISTINCT FROM lanes[i] THEN
        lane_of[i] := g;
        EXIT;
      END IF;
    END LOOP;
  END LOOP;
  -- What a lane leaves unused stays in the lane, then (level 2) in the queue.
  FOR level IN 1..2 LOOP
    FOR g IN 1..asks LOOP
      CONTINUE WHEN g <> (CASE level WHEN 1 THEN lane_of[g] ELSE queue_of[g] END);
      amount := 0;
      FOR i IN g..asks LOOP
        is_member := g = (CASE level WHEN 1 THEN lane_of[i] ELSE queue_of[i] END);
        IF is_member THEN
          amount := amount + own[i] - takes[i];
        END IF;
      END LOOP;
      amount := least(spare, amount);
      FOR i IN g..asks LOOP
        is_member := g = (CASE level WHEN 1 THEN lane_of[i] ELSE queue_of[i] END);
        IF is_member THEN
          extra := least(amount, available[i] - takes[i]);
          takes[i] := takes[i] + extra;
          amount := amount - extra;
          spare := spare - extra;
        END IF;
      END LOOP;
    END LOOP;
  END LOOP;
  -- What queues leave unused goes to the lanes that wait, in rounds, in the measure of their guarantees.
  amount := 0;
  FOR i IN 1..asks LOOP
    amount := amount + own[i] - takes[i];
  END LOOP;
  amount := least(spare, amount);
  WHILE amount > 0 LOOP
    weights := array_fill(0::bigint, ARRAY[asks]);
    FOR g IN 1..asks LOOP
      CONTINUE WHEN g <> lane_of[g];
      share := 0;
      is_open := false;
      FOR i IN g..asks LOOP
        IF lane_of[i] = g THEN
          share := share + own[i];
          is_open := is_open OR available[i] > takes[i];
        END IF;
      END LOOP;
      weights[g] := CASE WHEN is_open THEN share ELSE 0 END;
    END LOOP;
    weight := (SELECT sum(w) FROM unnest(weights) AS w);
    EXIT WHEN weight = 0;
    round := amount;
    reached := 0;
    given := 0;
    FOR g IN 1..asks LOOP
      CONTINUE WHEN weights[g] = 0;
      reached := reached + weights[g];
      share := (round * reached + weight - 1) / weight - given;
      given := given + share;
      FOR i IN g..asks LOOP
        IF lane_of[i] = g THEN
          extra := least(share, available[i] - takes[i]);
          takes[i] := takes[i] + extra;
          share := share - extra;
          amount := amount - extra;
          spare := spare - extra;
        END IF;
      END LOOP;
    END LOOP;
  END LOOP;
  FOR i IN 1..asks LOOP
    extra := least(spare, available[i] - takes[i]);
    takes[i] := takes[i] + extra;
    spare := spare - extra;
  END LOOP;
  RETURN takes;
END
$$
"""
