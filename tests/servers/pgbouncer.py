"""PgBouncer in transaction mode before a PostgreSQL server: every transaction gets another connection. A program on the PATH."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from tests.servers.accounts import unprivileged
from tests.servers.ports import HOST
from tests.servers.programs import ProgramMissing, on_path
from tests.servers.server import Server

CONFIG = """
[databases]
* = host={host} port={server_port} user=postgres
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
"""


class PgBouncer(Server):
    """A pooler. As root it runs as an unprivileged account, as it insists."""

    kind = "pgbouncer"

    def __init__(self, target: str, *, owner: int | None = None) -> None:
        super().__init__(owner=owner)
        self.account = unprivileged()
        self._target = urlsplit(target)

    @property
    def url(self) -> str:
        """The address of the same database, through the pooler."""
        return f"postgresql://postgres@{HOST}:{self.port}{self._target.path}"

    def prepare(self) -> None:
        """Writes its configuration."""
        (self.folder / "pgbouncer.ini").write_text(CONFIG.format(host=HOST, port=self.port, server_port=self._target.port))
        if self.account is not None:
            os.chown(self.folder, *self.account)

    def command(self) -> list[str]:
        """Stays in the foreground."""
        program = on_path("pgbouncer") or on_path("/usr/sbin/pgbouncer")
        if program is None:
            raise ProgramMissing("pgbouncer is missing: install the package pgbouncer, or set MULLIGAN_TEST_PGBOUNCER_URL")
        return [str(program), str(self.folder / "pgbouncer.ini")]

    def answers(self) -> bool:
        """A connection through it reaches the server."""
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2, prepare_threshold=None).close()
        except psycopg.OperationalError:
            return False
        return True
