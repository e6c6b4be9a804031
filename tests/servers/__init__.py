"""Real PostgreSQL, MongoDB and Redis for the tests.

`server_url(kind)` is the address of the one server all processes of a test run share; it is started by whoever asks first.
`fresh_url(kind)` is an empty place on it for one test. `Postgres()`, `Mongo()`, `MongoSet()` and `Redis()` are servers of a test's
own, to be stopped, killed and started again; `Proxy` stands between a store and its server and loses what it is told to lose.

Nothing here is ever skipped: what cannot be started is an error that names the missing package.
"""

from __future__ import annotations

from tests.servers.folder import current_run, end_run
from tests.servers.mongo import Mongo
from tests.servers.mongo_set import MongoSet
from tests.servers.namespaces import fresh_url, held_url, release, release_all
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy
from tests.servers.redis import Redis
from tests.servers.run import KINDS, server_url
from tests.servers.server import Server, ServerFailed

__all__ = [
    "KINDS",
    "Mongo",
    "MongoSet",
    "Postgres",
    "Proxy",
    "Redis",
    "Server",
    "ServerFailed",
    "current_run",
    "end_run",
    "fresh_url",
    "held_url",
    "release",
    "release_all",
    "server_url",
]
