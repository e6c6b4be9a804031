"""Opening the file: what must hold before a connection is made, and how every connection is set up."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from pathlib import Path
from typing import Literal

from mulligan.core.errors import BadSetting, MulliganError, StoreUnavailable
from mulligan.stores.sqlite.faults import primary_code, translated
from mulligan.stores.sqlite.version import check_version

Durability = Literal["full", "normal"]
DURABILITIES: tuple[Durability, ...] = ("full", "normal")

_CACHED_STATEMENTS = 256
_SYNCHRONOUS: dict[Durability, str] = {"full": "PRAGMA synchronous = FULL", "normal": "PRAGMA synchronous = NORMAL"}
# Twice SQLite's own: a batch then fills half as many pages, each of which is summed up, written and copied by itself. With still larger
# ones a single insert, which touches three pages however small it is, takes noticeably longer.
_PAGE_SIZE = "PRAGMA page_size = 8192"
_PRAGMAS = (
    "PRAGMA cache_size = -8000",  # KiB
    "PRAGMA wal_autocheckpoint = 2000",  # pages: a checkpoint every 16 MB; it happens inside a commit, and so under the file lock
    "PRAGMA journal_size_limit = 33554432",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA foreign_keys = ON",
)
_MOUNTS = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")  # how it writes a space
# Files on these are shared between machines, and neither file locks nor shared memory hold there.
_NETWORK_FILESYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "fuse.sshfs", "fuse.glusterfs", "ceph", "fuse.s3fs"}


def create_file(path: Path) -> None:
    """Makes an empty file that only this user may read, if there is none; refuses a place where a database cannot live."""
    check_version()
    try:
        _check_place(path)
        # Never opened and closed when it is there already: closing any descriptor of a file drops all of this process's locks on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.access(path, os.W_OK):
            raise BadSetting(f"this user may not write {path}; give it the right to, or choose another path") from None
    except OSError as problem:
        raise _cannot_write(path.parent, problem) from problem


def _check_place(path: Path) -> None:
    if path.is_dir():
        raise BadSetting(f"{path} is a folder; give the path of a file in it, for example {path / 'jobs.db'}")
    if not path.parent.is_dir():
        raise BadSetting(f"the folder {path.parent} does not exist; create it first (mkdir -p {path.parent}), or correct the path")
    filesystem = network_filesystem(path.parent)
    if filesystem is not None:
        raise BadSetting(
            f"{path} lies on a network file system ({filesystem}), where SQLite's locks do not hold; put the file on a local disk"
        )


def _cannot_write(folder: Path, problem: OSError) -> MulliganError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
        return StoreUnavailable(f"no file can be made in {folder}: {problem.strerror}; free some space or descriptors")
    return BadSetting(
        f"no file can be made in {folder}: {problem.strerror}; give this user the right to write there, or choose another path"
    )


def connect(path: Path, *, durability: Durability, busy_timeout_s: float, read_only: bool = False) -> sqlite3.Connection:
    """A connection in the mode all of ours use. The first one on a new file must be made under the file lock."""
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            timeout=busy_timeout_s,
            isolation_level=None,  # transactions are begun and ended in one place, by us
            check_same_thread=False,  # made and used by one thread each, but closed by the interpreter at its end
            cached_statements=_CACHED_STATEMENTS,
        )
    except sqlite3.Error as problem:
        raise opening_error(problem, path) from problem
    try:
        _set_up(connection, path, durability, read_only=read_only)
    except sqlite3.Error as problem:
        connection.close()
        raise opening_error(problem, path) from problem
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, path: Path, durability: Durability, *, read_only: bool) -> None:
    [encoding] = connection.execute("PRAGMA encoding").fetchone()
    if encoding != "UTF-8":
        # Texts would be sorted by other bytes than in every other store.
        raise BadSetting(f"{path} keeps its texts as {encoding}; mulligan needs a database in UTF-8, so give it a file of its own")
    [mode] = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        connection.execute(_PAGE_SIZE)  # heard by a file without anything in it; any other keeps the pages it has
        [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise BadSetting(f"{path}: SQLite cannot keep a write-ahead log here (journal mode {mode}); put the file on a local disk")
    for pragma in (_SYNCHRONOUS[durability], *_PRAGMAS):
        connection.execute(pragma)
    if read_only:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA cache_size = -2000")


def opening_error(problem: sqlite3.Error, path: Path) -> MulliganError:
    """The error for what went wrong while opening, where the path itself may be at fault."""
    code = primary_code(problem)
    if code == sqlite3.SQLITE_NOTADB:
        return BadSetting(f"{path} is not a SQLite database; choose another path (nothing was changed)")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return BadSetting(f"{path} cannot be opened for writing: {problem}; give this user the right to write the file and its folder")
    return translated(problem, str(path))


def network_filesystem(folder: Path, mounts: str = _MOUNTS) -> str | None:
    """The type of the network file system the folder is on; None on a local one, and where the system does not tell."""
    try:
        lines = Path(mounts).read_text("utf-8", "replace").splitlines()
    except OSError:
        return None  # not Linux
    here = str(folder.resolve())
    best, found = "", ""
    for line in lines:
        fields, kind = line.partition(" - ")[0].split(), line.partition(" - ")[2].split()
        if len(fields) < 5 or not kind:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # The last one listed lies on top of the others at the same place.
        if len(point) >= len(best) and (here == point or here.startswith(point.rstrip("/") + "/")):
            best, found = point, kind[0]
    return found if found in _NETWORK_FILESYSTEMS else None
