from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from mulligan.core.errors import BadSetting, IllegalMove, StoreUnavailable
from mulligan.stores import open_store
from mulligan.stores.sqlite import SQLiteStore, from_url, wal_reset_bug
from mulligan.stores.sqlite.connection import network_filesystem
from mulligan.stores.sqlite.version import check_version
from tests.builders import ask, get, new_job
from tests.sqlite.children import ROOT, child

Store = SQLiteStore


@pytest.mark.parametrize(
    "url, path",
    [
        ("sqlite:///jobs.db", "jobs.db"),
        ("sqlite:///sub/jobs.db", "sub/jobs.db"),
        ("sqlite:////var/lib/app/jobs.db", "/var/lib/app/jobs.db"),
        ("sqlite:////tmp/with%20space%3F.db", "/tmp/with space?.db"),
    ],
)
def test_url_names_a_file(url: str, path: str) -> None:
    """Three slashes and a relative path, or four for an absolute one; percent signs are decoded."""
    store = from_url(url)
    assert store.path == Path(os.path.realpath(path))
    assert store.url == url
    assert from_url(store.url).path == store.path


@pytest.mark.parametrize(
    "url, hint",
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://jobs.db", "three slashes"),
        ("sqlite:jobs.db", "three slashes"),
        ("sqlite:///folder/", "folder"),
        ("sqlite:///jobs.db#part", "%23"),
        ("sqlite:///jobs.db?durable=no", "no option 'durable'"),
        ("sqlite:///jobs.db?durability=some", "full, normal"),
        ("sqlite:///jobs.db?durability", "name=value"),
        ("sqlite:///jobs.db?durability=full&durability=normal", "twice"),
        ("sqlite:///jobs.db?busy_timeout_s=soon", "number of seconds"),
        ("sqlite:///jobs.db?busy_timeout_s=-1", "between 0 and"),
        ("sqlite:///jobs.db?busy_timeout_s=nan", "between 0 and"),
        ("sqlite:///jobs%00.db", "names no file"),
    ],
)
def test_malformed_url_is_refused_with_the_right_form(url: str, hint: str) -> None:
    """A URL that names no file, or an option that does not exist, is a BadSetting that says what to write."""
    with pytest.raises(BadSetting, match=hint):
        from_url(url)


@pytest.mark.parametrize("durability, synchronous", [("full", "full"), ("normal", "normal")])
async def test_durability_is_what_was_asked_for(path: Path, durability: str, synchronous: str) -> None:
    """Full waits for the disk at every commit and is the default; normal is there on request, also by URL."""
    store = from_url(f"sqlite:///{path}?durability={durability}")
    await store.open()
    writing = await store._write(lambda transaction: transaction.row("PRAGMA synchronous"))
    assert writing == ({"normal": 1, "full": 2}[synchronous],)
    assert (await store.describe())["durability"] == durability
    await store.close()
    assert SQLiteStore(path)._durability == "full"


async def test_describe_tells_the_doctor_what_there_is(store: Store, path: Path) -> None:
    """Version, bug, modes, schema, sizes and hints are all there."""
    about = await store.describe()
    assert about["path"] == str(path)
    assert about["sqlite_version"] == sqlite3.sqlite_version
    assert about["wal_reset_bug"] is wal_reset_bug(sqlite3.sqlite_version_info)
    assert (about["journal_mode"], about["synchronous"], about["file_lock"]) == ("wal", "full", "on")
    assert about["file_bytes"] == path.stat().st_size
    assert about["wal_bytes"] == Path(f"{path}-wal").stat().st_size > 0
    assert about["hints"] == "on"


async def test_new_file_has_larger_pages_and_another_keeps_its_own(store: Store, path: Path) -> None:
    """A file we make has pages of 8 KiB; one that the application made is used as it is."""
    own = path.with_name("own.db")
    with closing(sqlite3.connect(own)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    other = SQLiteStore(own)
    await other.open()
    await other.insert([new_job()])
    sizes = [await one._read(lambda t: t.row("PRAGMA page_size")) for one in (store, other)]
    await other.close()
    assert sizes == [(8_192,), (4_096,)]


async def test_files_are_for_this_user_alone(store: Store, path: Path) -> None:
    """The database and everything beside it is made with mode 0600, whatever the umask."""
    await store.insert([new_job()])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes) == {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-lock"}
    assert set(modes.values()) == {0o600}


async def test_missing_folder_is_not_made_silently(tmp_path: Path) -> None:
    """A path into a folder that is not there is refused, the error says to create it, and nothing is created."""
    store = SQLiteStore(tmp_path / "no" / "jobs.db")
    with pytest.raises(BadSetting, match="mkdir -p"):
        await store.open()
    assert not (tmp_path / "no").exists()
    with pytest.raises(IllegalMove, match="open"):
        await store.now_us()


async def test_folder_is_no_file(tmp_path: Path) -> None:
    """The path of a folder is refused with the path of a file to use instead."""
    with pytest.raises(BadSetting, match=r"jobs\.db"):
        await SQLiteStore(tmp_path).open()


async def test_database_in_another_encoding_is_refused(path: Path) -> None:
    """Groups and keys stand in the order of their bytes in UTF-8; a database that sorts by others is left as it is."""
    own = sqlite3.connect(path)
    own.executescript("PRAGMA encoding = 'UTF-16'; CREATE TABLE mine (x)")
    own.close()
    before = path.read_bytes()
    with pytest.raises(BadSetting, match="UTF-16"):
        await SQLiteStore(path).open()
    assert path.read_bytes() == before


async def test_other_file_is_not_touched(path: Path) -> None:
    """A file that is no database is refused and stays as it was."""
    path.write_bytes(b"These are the letters of somebody, and no database at all. " * 100)
    before = path.read_bytes()
    with pytest.raises(BadSetting, match="not a SQLite database"):
        await SQLiteStore(path).open()
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to, which only Linux has for sure")
async def test_folder_that_cannot_be_written_is_refused() -> None:
    """Where no file can be made, the error says so at open, not at the first enqueue."""
    with pytest.raises(BadSetting, match="no file can be made"):
        await SQLiteStore("/proc/self/jobs.db").open()


READ_ONLY = """
import os
os.setgid(65534)
os.setuid(65534)
from mulligan.core.errors import BadSetting
try:
    asyncio.run(SQLiteStore(sys.argv[1]).open())
    say("opened")
except BadSetting as problem:
    say(str(problem))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("where", ["file", "folder", "way"])
async def test_what_another_user_owns_is_refused_at_open(where: str) -> None:
    """A file or folder this user may not write, or not even reach, is refused at open with the rights to change."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # not below pytest's own folder, which is for one user only
        folder = Path(name)
        path = folder / "jobs.db"
        store = SQLiteStore(path)
        await store.open()
        await store.close()
        path.chmod(0o644)
        if where == "file":
            (folder / "jobs.db-lock").chmod(0o666)
        folder.chmod({"file": 0o777, "folder": 0o755, "way": 0o700}[where])
        with child(READ_ONLY, path) as other:
            assert "right" in other.hear()


MOUNTS = """\
21 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
44 21 0:40 / /srv/shared rw,relatime shared:9 - nfs4 server:/export rw
45 44 252:3 / /srv/shared/local\\040disk rw - xfs /dev/vdb rw
46 21 0:41 / /data rw - ext4 /dev/vdc rw
47 21 0:42 / /data rw - cifs //server/data rw
too short
"""


@pytest.mark.parametrize(
    "folder, kind",
    [
        ("/var/lib", None),
        ("/srv/shared", "nfs4"),
        ("/srv/shared/deep/er", "nfs4"),
        ("/srv/sharedx", None),
        ("/srv/shared/local disk/x", None),
        ("/data", "cifs"),
    ],
)
def test_network_file_systems_are_recognised(tmp_path: Path, folder: str, kind: str | None) -> None:
    """The innermost mount decides, and of two at one place the later one."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert network_filesystem(Path(folder), str(mounts)) == kind


def test_system_that_lists_no_mounts_is_believed(tmp_path: Path) -> None:
    """Without a list of mounts nothing is refused."""
    assert network_filesystem(tmp_path, str(tmp_path / "missing")) is None


@pytest.mark.parametrize(
    "version, has_bug",
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_versions_with_the_wal_reset_bug(version: tuple[int, ...], has_bug: bool) -> None:
    """3.7.0 to 3.51.2 have it, but for the maintenance releases that were repaired."""
    assert wal_reset_bug(version) is has_bug


def test_library_that_is_too_old_is_refused() -> None:
    """Below 3.37 there are no STRICT tables; the error says what is needed."""
    check_version((3, 37, 0))
    with pytest.raises(BadSetting, match=r"SQLite 3\.36\.0, mulligan needs 3\.37"):
        check_version((3, 36, 0))


async def test_strange_names_are_just_names(tmp_path: Path) -> None:
    """Spaces, question marks, percent signs and letters of any language may be in the path."""
    path = tmp_path / "naïve jobs?mode=memory#100%.db"
    store = SQLiteStore(path)
    await store.open()
    await store.insert([new_job()])
    await store.close()
    assert path.exists()
    again = from_url(store.url)
    await again.open()
    assert (await again.stats()).queues[0].fresh_ready == 1
    await again.close()


async def test_link_and_target_are_one_store(tmp_path: Path) -> None:
    """Two paths to one file share its lock and its wake-ups, because both mean the real path."""
    target, link = SQLiteStore(tmp_path / "jobs.db"), SQLiteStore(tmp_path / "link.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    link = SQLiteStore(tmp_path / "link.db")
    await target.open()
    await link.open()
    assert link.path == target.path
    assert not (tmp_path / "link.db-lock").exists()
    job = new_job()
    await target.insert([job])
    assert (await get(link, job.id)).id == job.id
    await link.close()
    await target.close()


async def test_relative_path_does_not_follow_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the folder in which the store was made."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("jobs.db")
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    await store.open()
    await store.close()
    assert (tmp_path / "jobs.db").exists()


async def test_deleted_file_is_noticed(store: Store, path: Path) -> None:
    """A file that is deleted under an open store makes it unavailable, instead of swallowing a job; reopening mends it."""
    await store.insert([new_job()])
    for file in path.parent.glob("jobs.db*"):
        file.unlink()
    with pytest.raises(StoreUnavailable, match="deleted"):
        await store.insert([new_job()])
    path.touch()
    with pytest.raises(StoreUnavailable, match="replaced"):
        await store.insert([new_job()])
    await store.close()
    await store.open()
    assert (await store.insert([new_job()]))[0].created


async def test_failed_open_leaves_no_thread_behind(tmp_path: Path) -> None:
    """A store that could not be opened keeps nothing running, and can be opened once the cause is gone."""
    before = threading.active_count()
    store = SQLiteStore(tmp_path / "later" / "jobs.db")
    with pytest.raises(BadSetting):
        await store.open()
    assert threading.active_count() == before
    (tmp_path / "later").mkdir()
    await store.open()
    await store.close()
    assert threading.active_count() == before


async def test_concurrent_opens_are_one(path: Path) -> None:
    """Several tasks may open and close the same store at once."""
    store = SQLiteStore(path)
    await asyncio.gather(*(store.open() for _ in range(5)))
    assert (await store.insert([new_job()]))[0].created
    await asyncio.gather(*(store.close() for _ in range(5)))
    with pytest.raises(IllegalMove):
        await store.stats()


FORK = """
import os
from mulligan.core.errors import IllegalMove

store = SQLiteStore(sys.argv[1])
job = builders.new_job

async def in_child():
    answers = []
    for call in (store.stats, store.now_us, lambda: store.insert([job()]), lambda: store.renew([], 1)):
        try:
            await call()
        except IllegalMove as problem:
            answers.append("after the fork" in str(problem))
    await store.open()
    answers.append((await store.insert([job()]))[0].created)
    await store.close()
    await store.close()
    say(answers)

async def in_parent():
    await store.insert([job()])
    say((await store.stats()).queues[0].fresh_ready)
    await store.close()

with asyncio.Runner() as runner:
    runner.run(store.open())
    runner.run(store.insert([job()]))
    child = os.fork()
    if child == 0:
        asyncio.run(in_child())
        os._exit(0)
    os.waitpid(child, 0)
    runner.run(in_parent())
"""


def test_forked_child_is_told_to_open_its_own(path: Path) -> None:
    """In a forked child an open store refuses every call, can be opened anew there, and goes on in the parent."""
    with child(FORK, path) as parent:
        assert parent.hear() == [True] * 5
        assert parent.hear() == 3


def test_importing_the_package_does_not_import_the_driver() -> None:
    """Whoever uses another store does not pay for sqlite3."""
    code = "import sys, mulligan, mulligan.stores; print('sqlite3' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert answer.stdout.strip() == "False"


async def test_store_is_found_by_its_url(path: Path) -> None:
    """open_store gives this store for a sqlite URL, and passes its options on."""
    store = open_store(f"sqlite:///{path}?durability=normal&busy_timeout_s=0.5")
    assert isinstance(store, SQLiteStore)
    await store.open()
    assert (await store.claim("c", "w", [ask()], 1, 1)).jobs == []
    await store.close()
