"""PostgreSQL from its wheel, with its own initdb and postgres. As root, both run as an unprivileged account, as they insist.

Drivers are imported late in this package: most processes of a test run never talk to a server.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.servers.accounts import unprivileged
from tests.servers.folder import run_folder
from tests.servers.ports import HOST
from tests.servers.programs import postgres_install
from tests.servers.server import Server, ServerFailed

VERSION = int(os.environ.get("MULLIGAN_TEST_POSTGRES_VERSION", "16"))
CONNECTIONS_MAX = 300
INIT_S = 60


class Postgres(Server):
    """A PostgreSQL server with normal durability."""

    kind = "postgres"
    clean = signal.SIGINT
    abrupt = signal.SIGQUIT

    def __init__(self, *, version: int = VERSION, owner: int | None = None, options: dict[str, str] | None = None) -> None:
        super().__init__(owner=owner)
        self.version = version
        self.options = options or {}
        self.account = unprivileged()
        self._data = self.folder / "data"
        self._install: Path | None = None

    @property
    def url(self) -> str:
        """The address of its first database, whose user needs no password."""
        return f"postgresql://postgres@{HOST}:{self.port}/postgres"

    def prepare(self) -> None:
        """Makes the data folder. Only the writing of the empty database goes unsynced."""
        if self.account is not None:
            os.chown(self.folder, *self.account)
        init = [
            *(self._program("initdb"), "--pgdata", str(self._data), "--username=postgres", "--auth=trust"),
            *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
        ]
        answer = self._run(init)
        if answer.returncode != 0:
            self.remove()
            raise ServerFailed(f"initdb failed; it said:\n{answer.stdout}{answer.stderr}")

    def command(self) -> list[str]:
        """Listens on one address, and on no socket file."""
        options = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": str(CONNECTIONS_MAX),
            **self.options,
        }
        return [self._program("postgres"), "-D", str(self._data), *(word for item in options.items() for word in ("-c", "=".join(item)))]

    def answers(self) -> bool:
        """A connection is let in once recovery is over."""
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def remove(self) -> None:
        """Also gives back the piece of shared memory that a killed server leaves to the system."""
        if self.running:
            self.stop()
        for identity in left_memory(self._data):
            subprocess.run(["ipcrm", "-m", identity], capture_output=True, check=False)
        super().remove()

    def _program(self, name: str) -> str:
        if self._install is None:
            self._install = self._usable_install()
        return str(self._install / "bin" / name)

    def _usable_install(self) -> Path:
        """The installed folder, or a copy of it where the unprivileged account may not reach the original."""
        install = postgres_install(self.version)
        try:
            self._run([str(install / "bin" / "postgres"), "--version"], check=True)
        except (OSError, subprocess.CalledProcessError):
            return reachable_copy(install.resolve())
        return install

    def _run(self, command: list[str], *, check: bool = False) -> subprocess.CompletedProcess[str]:
        uid, gid = self.account or (None, None)
        groups: list[int] | None = None if self.account is None else []
        return subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INIT_S,
            check=check,
            user=uid,
            group=gid,
            extra_groups=groups,
        )


def reachable_copy(install: Path) -> Path:
    """A copy in the folder of the run, with the libraries that the programs look for beside their package."""
    package = install.parent
    common = run_folder() / "programs"
    if not common.exists():
        whole = Path(tempfile.mkdtemp(prefix="copy-", dir=run_folder()))
        whole.chmod(0o755)
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, whole / part.name, symlinks=True, ignore=shutil.ignore_patterns("include", "__pycache__"))
        try:
            whole.rename(common)
        except OSError:  # Another process was quicker.
            shutil.rmtree(whole)
    return common / package.name / install.name


def left_memory(data: Path) -> list[str]:
    """The identity of the shared memory named in the lock file that only a server which was killed leaves behind."""
    try:
        lines = (data / "postmaster.pid").read_text("utf-8").splitlines()
        return [lines[6].split()[1]] if shutil.which("ipcrm") else []
    except (OSError, IndexError):
        return []
