"""What a namespace is on each server: how it is named, written into a URL, and emptied. Knows no table and no key of any store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tests.servers.run import OVERRIDES, server_url
from tests.servers.urls import with_database, with_option

if TYPE_CHECKING:
    from psycopg import Connection

# What a store writes once, when it makes its tables or collections, and then takes for granted.
KEPT = ["migrations", "mulligan_migrations", "mulligan_meta"]

# One statement that needs nothing of the session, since a pooler may stand between.
EMPTY_SCHEMA = """
DO $$
DECLARE
  wanted text := {wanted};
  kept text[] := {kept};
  tables text;
  bound boolean;
  one record;
BEGIN
  -- Who waits for a lock here waits for a connection that a test forgot.
  PERFORM set_config('lock_timeout', '2000', true);
  SELECT string_agg(format('%I.%I', wanted, relname), ', '),
         coalesce(bool_or(pg_table_size(c.oid) > 1000000
           OR EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND conrelid = c.oid)), false)
    INTO tables, bound
    FROM pg_class c
   WHERE relnamespace = to_regnamespace(wanted) AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> ALL (kept);
  IF tables IS NULL THEN
    RETURN;
  END IF;
  -- No trigger shall write into a table that was emptied before.
  IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
    PERFORM set_config('session_replication_role', 'replica', true);
  END IF;
  -- A few rows are deleted in less time than it takes to make new files for a table and its indexes.
  IF bound THEN
    EXECUTE 'TRUNCATE ' || tables;
  ELSE
    FOR one IN SELECT unnest(string_to_array(tables, ', ')) AS name LOOP
      EXECUTE 'DELETE FROM ' || one.name;
    END LOOP;
  END IF;
  FOR one IN SELECT c.oid::regclass AS name, s.seqstart AS first FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid
    WHERE c.relnamespace = to_regnamespace(wanted) LOOP
    PERFORM setval(one.name, one.first, false);
  END LOOP;
END $$
"""

EMPTY_PREFIX = """
local cursor = ARGV[2]
for _ = 1, 100 do
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    redis.call('UNLINK', key)
  end
  if cursor == '0' then break end
end
return cursor
"""


class Places(ABC):
    """The namespaces of one server, over one connection that stays open."""

    kind: str

    @abstractmethod
    def name(self, token: str, number: int) -> str:
        """The name of a namespace; the token is this process's own."""

    @abstractmethod
    def url(self, name: str) -> str:
        """The URL a store in that namespace is opened with."""

    @abstractmethod
    def empty(self, name: str) -> bool:
        """Removes what is in it. False if somebody still holds on to it, so that it cannot be used again."""

    @abstractmethod
    def close(self, names: list[str]) -> None:
        """Closes the connection; removes the namespaces where the server outlives the run."""

    @property
    def server_stays(self) -> bool:
        """Whether the server was there before us."""
        return bool(os.environ.get(OVERRIDES[self.kind]))


class Schemas(Places):
    """On PostgreSQL: schemas of one database."""

    kind = "postgres"

    def __init__(self) -> None:
        self._url = server_url(self.kind)
        self._connection = self._connect()

    def name(self, token: str, number: int) -> str:
        """A name that needs no quotes."""
        return f"t_{token}_{number}"

    def url(self, name: str) -> str:
        """The schema is an option."""
        return with_option(self._url, "schema", name)

    def empty(self, name: str) -> bool:
        """Empties every table but the journal of migrations, and starts every sequence anew."""
        from psycopg import OperationalError, sql

        try:
            if self._connection.closed:
                self._connection = self._connect()
            self._connection.execute(sql.SQL(EMPTY_SCHEMA).format(wanted=sql.Literal(name), kept=sql.Literal(KEPT)))
        except OperationalError:
            self._connection.close()
            return False
        return True

    def close(self, names: list[str]) -> None:
        """Drops the schemas of a server that stays."""
        from psycopg import sql

        if self.server_stays:
            if self._connection.closed:
                self._connection = self._connect()
            for name in names:
                self._connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))
        self._connection.close()

    def _connect(self) -> Connection[Any]:
        from psycopg import connect

        return connect(self._url, autocommit=True, prepare_threshold=None)


class Databases(Places):
    """On MongoDB: databases."""

    kind = "mongo"

    def __init__(self) -> None:
        from pymongo import MongoClient

        self._url = server_url(self.kind)
        self._client: MongoClient[dict[str, Any]] = MongoClient(self._url, serverSelectionTimeoutMS=10_000)

    def name(self, token: str, number: int) -> str:
        """A name that is allowed everywhere."""
        return f"t_{token}_{number}"

    def url(self, name: str) -> str:
        """The database is the path."""
        return with_database(self._url, name)

    def empty(self, name: str) -> bool:
        """Empties every collection but the store's notes on itself; indexes stay."""
        from pymongo import WriteConcern

        database = self._client[name]
        names = [name for name in database.list_collection_names() if name not in KEPT and not name.startswith("system.")]
        filled = self._filled(name, names)
        # Only the last one waits for the disk, and with it for all those before.
        for position, collection in enumerate(filled, start=1):
            concern = WriteConcern("majority" if position == len(filled) else 1)
            database.get_collection(collection, write_concern=concern).delete_many({})
        return True

    def close(self, names: list[str]) -> None:
        """Drops the databases of a server that stays."""
        if self.server_stays:
            for name in names:
                self._client.drop_database(name)
        self._client.close()

    def _filled(self, name: str, collections: list[str]) -> list[str]:
        """Those that hold anything. Most are empty, and one question about all of them costs less than a call for each."""
        if not collections:
            return []
        looks = [[{"$limit": 1}, {"$project": {"_id": 0, "found": {"$literal": one}}}] for one in collections]
        others = [{"$unionWith": {"coll": one, "pipeline": look}} for one, look in zip(collections[1:], looks[1:], strict=True)]
        return [row["found"] for row in self._client[name][collections[0]].aggregate([*looks[0], *others])]


class Prefixes(Places):
    """On Redis: the prefixes of keys."""

    kind = "redis"

    def __init__(self) -> None:
        import redis

        self._url = server_url(self.kind)
        self._client = redis.Redis.from_url(self._url)

    def name(self, token: str, number: int) -> str:
        """A name without a brace, which would end the hash tag."""
        return f"t-{token}-{number}"

    def url(self, name: str) -> str:
        """The app is an option."""
        return with_option(self._url, "app", name)

    def empty(self, name: str) -> bool:
        """Removes every key with this hash tag, in one call, or in several where there are very many: none may hold up the server."""
        cursor = b"0"
        while (cursor := self._client.eval(EMPTY_PREFIX, 0, f"{{{name}}}*", cursor)) != b"0":
            pass
        return True

    def close(self, names: list[str]) -> None:
        """Empties the prefixes of a server that stays."""
        if self.server_stays:
            for name in names:
                self.empty(name)
        self._client.close()


PLACES: dict[str, type[Schemas | Databases | Prefixes]] = {"postgres": Schemas, "mongo": Databases, "redis": Prefixes}
