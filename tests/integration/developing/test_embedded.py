"""The embedded server, with real processes that start, share, leave and die."""

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient, WriteConcern
from pymongo.read_concern import ReadConcern

from monque.embedded import EmbeddedMongo, EmbeddedMongoError, find_mongod, supervisor
from support.places import short_folder
from support.traffic import Traffic

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

CLIENT = Path(__file__).parents[2] / "support" / "embedded_client.py"


class Client:
    """A process that uses the server of a data directory."""

    def __init__(self, *words: str | Path, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, CLIENT, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | (env or {}),
        )

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        with self.process:
            self.process.kill()


@contextmanager
def world(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short folder for sockets and temporary data; at the end nothing that was started in it runs."""
    tmp_path_factory.getbasetemp()  # before we change what it would depend on
    root = Path(tempfile.mkdtemp(prefix="mq-", dir=short_folder()))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
    monkeypatch.setenv("TMPDIR", str(root))
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    for name in ("MONQUE_MONGOD", "MONQUE_DATA_DIR", "MONQUE_URI"):
        monkeypatch.delenv(name, raising=False)
    try:
        yield root
    finally:
        end_all_of(root)
        shutil.rmtree(root)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with world(monkeypatch, tmp_path_factory) as root:
        yield root


@pytest.fixture
def clients() -> Iterator[Callable[..., Client]]:
    started: list[Client] = []

    def start(*words: str | Path, env: dict[str, str] | None = None) -> Client:
        started.append(Client(*words, env=env))
        return started[-1]

    yield start
    for client in started:
        client.kill()


@pytest.fixture
def data_dir(root: Path, tmp_path: Path, clients: object) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongo]:
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        world(monkeypatch, tmp_path_factory),
        EmbeddedMongo(tmp_path_factory.mktemp("shared") / "data") as server,
    ):
        yield server


def command_line(pid: int) -> str:
    return supervisor.command_line(pid)


def processes_of(root: Path) -> list[int]:
    pids = [int(process.name) for process in Path("/proc").iterdir() if process.name.isdigit()]
    return [pid for pid in pids if f"{root}/" in command_line(pid)]


def end_all_of(root: Path) -> None:
    """Kill the supervisors; what is not gone then is a bug."""
    for pid in processes_of(root):
        if str(supervisor.__file__) in command_line(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    try:
        eventually(lambda: not processes_of(root))
    finally:
        for pid in processes_of(root):
            os.kill(pid, signal.SIGKILL)


def eventually(check: Callable[[], object], *, within: float = 15.0) -> None:
    deadline = time.monotonic() + within
    while not check():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def mongod_of(data_dir: Path) -> int:
    return int((data_dir / "mongod.lock").read_text())


def supervisor_of(data_dir: Path) -> int:
    status = Path(f"/proc/{mongod_of(data_dir)}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


def runs(pid: int) -> bool:
    return bool(command_line(pid))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not runs(pid))


def end_cleanly(data_dir: Path) -> None:
    mongod = mongod_of(data_dir)
    os.kill(supervisor_of(data_dir), signal.SIGTERM)
    eventually(lambda: not runs(mongod))


def write(uri: str) -> None:
    with MongoClient[dict[str, Any]](uri) as client:
        client.test.notes.insert_one({})


def count(uri: str) -> int:
    with MongoClient[dict[str, Any]](uri) as client:
        return client.test.notes.count_documents({})


def a_program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# What the server is.


async def test_the_async_driver_has_transactions_and_change_streams(server: EmbeddedMongo) -> None:
    async with AsyncMongoClient[dict[str, Any]](server.uri) as client:
        notes = client.async_test.notes
        async with await notes.watch() as stream:
            async with client.start_session() as session, await session.start_transaction():
                await notes.insert_one({"n": 1}, session=session)
            assert (await stream.next())["fullDocument"]["n"] == 1


def test_the_sync_driver_has_transactions_change_streams_and_retryable_writes(server: EmbeddedMongo) -> None:
    inserts = Traffic("insert")
    with MongoClient[dict[str, Any]](server.uri, event_listeners=[inserts]) as client:
        notes = client.sync_test.notes
        with notes.watch() as stream:
            with client.start_session() as session, session.start_transaction():
                notes.insert_one({"n": 1}, session=session)
            assert stream.next()["fullDocument"]["n"] == 1
        notes.insert_one({"n": 2})
    assert "txnNumber" in inserts.commands[-1]


def test_the_server_keeps_no_old_versions_for_reads_in_the_past(server: EmbeddedMongo) -> None:
    """They cost CPU for every job, and make polls of empty queues slow."""
    with MongoClient[dict[str, Any]](server.uri) as client:
        answer = client.admin.command("getParameter", 1, minSnapshotHistoryWindowInSeconds=1)

    assert answer["minSnapshotHistoryWindowInSeconds"] == 0


def test_a_transaction_sees_its_snapshot_however_much_is_written_meanwhile(server: EmbeddedMongo) -> None:
    """The server keeps no old versions for the past, but those that an open transaction can see."""
    with MongoClient[dict[str, Any]](server.uri) as client, client.start_session() as session:
        notes = client.snapshot_test.get_collection("notes", write_concern=WriteConcern("majority"))
        notes.insert_one({"_id": 1, "n": 0})
        with session.start_transaction(read_concern=ReadConcern("snapshot")):
            seen = [notes.find_one({"_id": 1}, session=session)]
            for _ in range(200):
                notes.update_one({"_id": 1}, {"$inc": {"n": 1}})
            seen.append(notes.find_one({"_id": 1}, session=session))

    assert seen == [{"_id": 1, "n": 0}] * 2


def test_only_this_user_can_reach_the_server(server: EmbeddedMongo) -> None:
    with MongoClient[dict[str, Any]](server.uri) as client:
        options = client.admin.command("getCmdLineOpts")["parsed"]
    path = Path(options["net"]["bindIp"])

    assert [stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent, server.data_dir)] == [0o700] * 3
    assert listening_sockets(mongod_of(server.data_dir)) == {str(path)}


def listening_sockets(pid: int) -> set[str]:
    """Addresses on which a process takes connections, of both kinds."""
    inodes = set(socket_inodes(pid))
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    tcp = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()]
    unix = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    listening = {row[1] for row in tcp if row[3] == "0A" and row[9] in inodes}
    return listening | {row[7] for row in unix if row[3] == "00010000" and row[6] in inodes}


def socket_inodes(pid: int) -> Iterator[str]:
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # connections come and go while we look
            yield str(fd.readlink()).removeprefix("socket:[").removesuffix("]")


def test_an_almost_empty_database_takes_about_ten_megabytes(server: EmbeddedMongo) -> None:
    blocks = sum(file.stat().st_blocks for file in server.data_dir.rglob("*"))

    assert blocks * 512 < 15_000_000


def test_the_supervisor_is_detached_from_its_client(server: EmbeddedMongo) -> None:
    pid = supervisor_of(server.data_dir)
    links = {Path(f"/proc/{pid}/{name}").readlink() for name in ("cwd", "fd/1", "fd/2")}

    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/status").read_text().split("PPid:\t")[1].split()[0] != str(os.getpid())
    assert links == {Path("/"), server.data_dir / "mongod.log"}


def test_mongod_may_open_more_files_than_its_client(data_dir: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with EmbeddedMongo(data_dir):
            limits = Path(f"/proc/{mongod_of(data_dir)}/limits").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    [open_files] = [line.split() for line in limits.splitlines() if line.startswith("Max open files")]
    assert int(open_files[3]) == min(supervisor.OPEN_FILES, hard)


async def test_start_and_stop_may_be_repeated(data_dir: Path) -> None:
    server = EmbeddedMongo(data_dir)
    with pytest.raises(EmbeddedMongoError, match="not started"):
        _ = server.uri

    assert await server.start() == await server.start() == server.uri
    await server.stop()
    await server.stop()
    with pytest.raises(EmbeddedMongoError, match="not started"):
        _ = server.uri
    async with server:
        assert count(server.uri) == 0


# Who keeps it running.


def test_five_processes_racing_for_a_cold_directory_share_one_server(
    data_dir: Path, clients: Callable[..., Client]
) -> None:
    answers = [client.answer() for client in [clients(data_dir) for _ in range(5)]]

    assert len({answer["uri"] for answer in answers}) == 1
    for answer in answers:
        write(answer["uri"])
    assert count(answers[0]["uri"]) == 5


def test_it_ends_when_the_last_process_is_killed(data_dir: Path, clients: Callable[..., Client]) -> None:
    first, second = clients(data_dir, "--with-program"), clients(data_dir, "--with-program")
    children = [first.answer()["child"], second.answer()["child"]]
    mongod, owner = mongod_of(data_dir), supervisor_of(data_dir)

    first.kill()
    with EmbeddedMongo(data_dir) as third:
        second.kill()
        write(third.uri)
        assert mongod_of(data_dir) == mongod
    eventually(lambda: not runs(mongod) and not runs(owner))
    assert all(runs(child) for child in children)
    for child in children:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_keeps_it_running(data_dir: Path, clients: Callable[..., Client]) -> None:
    client = clients(data_dir, "--with-fork")
    answer = client.answer()
    mongod = mongod_of(data_dir)

    client.kill()
    with EmbeddedMongo(data_dir) as later:
        assert later.uri == answer["uri"]
    with pytest.raises(AssertionError):
        eventually(lambda: not runs(mongod), within=supervisor.LINGER + 0.5)
    os.kill(answer["child"], signal.SIGKILL)
    eventually(lambda: not runs(mongod))


def test_a_process_that_comes_while_the_server_is_ending_gets_a_new_one(
    data_dir: Path, clients: Callable[..., Client]
) -> None:
    """The clients leave; mongod gets the signal to end, but is slow; a client comes; mongod ends."""
    with EmbeddedMongo(data_dir) as server:
        write(server.uri)
        old = mongod_of(data_dir)
        os.kill(old, signal.SIGSTOP)
    control = next(Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*.control"))
    eventually(lambda: not control.exists())

    late = clients(data_dir)
    eventually(
        lambda: str(supervisor.__file__) in " ".join(map(command_line, processes_of(control.parents[1])))
    )
    assert runs(old)
    os.kill(old, signal.SIGCONT)

    assert count(late.answer()["uri"]) == 1
    assert mongod_of(data_dir) != old


async def test_a_cancelled_start_leaves_nothing_behind(data_dir: Path, root: Path) -> None:
    server = EmbeddedMongo(data_dir)
    start = asyncio.create_task(server.start())
    await asyncio.to_thread(eventually, (data_dir / "mongod.lock").exists)
    start.cancel()

    with pytest.raises(asyncio.CancelledError):
        await start
    eventually(lambda: not processes_of(root))


# What survives.


def test_data_survives_and_the_end_is_clean(data_dir: Path) -> None:
    with EmbeddedMongo(data_dir) as server:
        write(server.uri)
    eventually(lambda: (data_dir / "mongod.lock").read_text() == "")  # as mongod leaves it after a clean end

    with EmbeddedMongo(data_dir) as server:
        assert count(server.uri) == 1


@pytest.mark.parametrize("victim", [supervisor_of, mongod_of])
def test_a_killed_server_is_started_again_with_its_data(
    data_dir: Path, victim: Callable[[Path], int]
) -> None:
    with EmbeddedMongo(data_dir) as first:
        write(first.uri)
        pids = mongod_of(data_dir), supervisor_of(data_dir)

        kill(victim(data_dir))
        eventually(lambda: not any(map(runs, pids)))
        with EmbeddedMongo(data_dir) as second:
            assert count(second.uri) == 1
            assert first.__enter__().uri == second.uri
        assert count(first.uri) == 1


def test_acknowledged_writes_survive_the_death_of_everything(
    data_dir: Path, clients: Callable[..., Client]
) -> None:
    client = clients(data_dir)
    uri = client.answer()["uri"]
    for _ in range(20):
        write(uri)

    for pid in (supervisor_of(data_dir), mongod_of(data_dir)):
        with suppress(ProcessLookupError):
            kill(pid)
    client.kill()
    with EmbeddedMongo(data_dir) as server:
        assert count(server.uri) == 20


def test_a_crash_before_the_replica_set_exists_is_repaired(data_dir: Path) -> None:
    """mongod ran, but nobody got to the point of initiating it; and it outlived its supervisor."""
    plan = a_plan(data_dir, socket_path=Path(os.environ["XDG_RUNTIME_DIR"], "left.sock"))
    data_dir.mkdir()
    leftover = subprocess.Popen(plan.command, stdout=subprocess.DEVNULL)
    with leftover, socket.socket(socket.AF_UNIX) as probe:
        eventually(lambda: probe.connect_ex(str(plan.socket)) == 0)

        with EmbeddedMongo(data_dir) as server:
            write(server.uri)
        assert leftover.wait(10) == 0


def test_a_process_that_merely_has_the_pid_of_the_last_mongod_is_left_alone(data_dir: Path) -> None:
    data_dir.mkdir()
    with subprocess.Popen(["sleep", "100"]) as other:
        (data_dir / "mongod.lock").write_text(f"{other.pid}\n")
        with EmbeddedMongo(data_dir) as server:
            write(server.uri)
        assert other.poll() is None
        other.kill()


# Where it is.


def test_paths_may_be_long_and_have_spaces(root: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "my data, and more" / ("very long " * 22)

    with EmbeddedMongo(data_dir) as server:
        write(server.uri)
        assert mongod_of(data_dir)


def test_a_moved_directory_works_on(data_dir: Path, tmp_path: Path) -> None:
    with EmbeddedMongo(data_dir) as server:
        write(server.uri)
        old_uri = server.uri
        end_cleanly(data_dir)
    moved = data_dir.rename(tmp_path / "moved")

    with EmbeddedMongo(moved) as server:
        assert server.uri != old_uri
        assert count(server.uri) == 1
        write(server.uri)


def test_a_copy_of_a_running_directory_gets_a_server_of_its_own(data_dir: Path, tmp_path: Path) -> None:
    """The copy holds the note that says where the original's supervisor listens."""
    with EmbeddedMongo(data_dir) as original:
        os.kill(mongod_of(data_dir), signal.SIGSTOP)
        copied = Path(shutil.copytree(data_dir, tmp_path / "copy"))
        os.kill(mongod_of(data_dir), signal.SIGCONT)
        (copied / "mongod.lock").unlink()

        with EmbeddedMongo(copied) as copy:
            write(copy.uri)
            assert count(original.uri) == 0


def test_a_directory_deleted_and_made_anew_gets_a_new_server(data_dir: Path) -> None:
    """Its old server still lingers, and removes its socket when it ends."""
    with EmbeddedMongo(data_dir) as server:
        write(server.uri)
        old = mongod_of(data_dir)
    shutil.rmtree(data_dir, ignore_errors=True)

    with EmbeddedMongo(data_dir) as server:
        assert not runs(old)
        assert count(server.uri) == 0


def test_processes_with_different_temp_dirs_share_one_server(
    data_dir: Path, root: Path, clients: Callable[..., Client]
) -> None:
    with EmbeddedMongo(data_dir) as server:
        write(server.uri)
        (root / "other").mkdir()
        other = clients(data_dir, env={"TMPDIR": str(root / "other"), "XDG_RUNTIME_DIR": ""})

        assert other.answer()["uri"] == server.uri


def test_a_socket_folder_of_somebody_else_is_refused(data_dir: Path, root: Path) -> None:
    trap = root / f"monque-{os.geteuid()}"
    trap.symlink_to(root)
    with pytest.raises(EmbeddedMongoError, match=f"{trap} is not a folder of this user"):
        EmbeddedMongo(data_dir).__enter__()
    trap.unlink()

    if os.geteuid() == 0:
        trap.mkdir()
        os.chown(trap, 65534, 65534)
        with pytest.raises(EmbeddedMongoError, match=f"{trap} is not a folder of this user"):
            EmbeddedMongo(data_dir).__enter__()


def test_the_data_is_kept_among_the_data_of_the_user(
    monkeypatch: pytest.MonkeyPatch, root: Path, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert EmbeddedMongo().data_dir == tmp_path / ".local/share/monque/mongodb"

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert EmbeddedMongo().data_dir == tmp_path / "xdg/monque/mongodb"

    monkeypatch.setenv("MONQUE_DATA_DIR", str(tmp_path / "mine"))
    assert EmbeddedMongo().data_dir == tmp_path / "mine"
    assert EmbeddedMongo(tmp_path / "argument").data_dir == tmp_path / "argument"


def test_an_unusable_data_dir_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(
        EmbeddedMongoError, match=r"cannot be kept in .*/file/data \(Not a directory\): .*MONQUE_DATA_DIR"
    ):
        EmbeddedMongo(tmp_path / "file" / "data").__enter__()


def test_a_big_log_is_put_aside(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "mongod.log").write_bytes(b"\n" * (supervisor.LOG_LIMIT + 1))

    with EmbeddedMongo(data_dir):
        assert (data_dir / "mongod.log.1").stat().st_size > supervisor.LOG_LIMIT
        assert (data_dir / "mongod.log").stat().st_size < 200_000


def test_a_log_that_grows_big_is_put_aside_while_the_server_runs(
    data_dir: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(data_dir, socket_path=root / "mongod.sock")
    data_dir.mkdir()
    plan.log.touch()
    monkeypatch.setattr(supervisor, "LOG_LIMIT", 1000)
    with supervisor.Mongod(plan) as mongod:
        eventually(mongod.answers)
        mongod.keep_log_small()

        eventually(plan.log.exists)
        assert plan.log.with_name("mongod.log.1").stat().st_size > 1000


# Temporary servers.


def test_a_temporary_server_is_private_and_leaves_nothing(root: Path) -> None:
    with EmbeddedMongo(temporary=True) as one, EmbeddedMongo(temporary=True) as other:
        write(one.uri)
        assert count(other.uri) == 0
        assert stat.S_IMODE(one.data_dir.stat().st_mode) == 0o700
        pids = mongod_of(one.data_dir), mongod_of(other.data_dir)

    assert not any(map(runs, pids))
    assert [path.name for path in root.rglob("*")] == [f"monque-{os.geteuid()}"]


def test_a_temporary_server_leaves_nothing_when_its_owner_is_killed(
    root: Path, clients: Callable[..., Client]
) -> None:
    client = clients("--temporary")
    data_dir = Path(client.answer()["data_dir"])
    assert data_dir.parent == root

    client.kill()
    eventually(lambda: not processes_of(root))
    assert [path.name for path in root.rglob("*")] == [f"monque-{os.geteuid()}"]


def test_a_temporary_server_leaves_nothing_when_its_supervisor_is_killed(root: Path) -> None:
    with EmbeddedMongo(temporary=True) as server:
        mongod = mongod_of(server.data_dir)
        kill(supervisor_of(server.data_dir))
        eventually(lambda: not runs(mongod))

    assert not server.data_dir.exists()


def test_a_temporary_server_takes_no_data_dir(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data_dir"):
        EmbeddedMongo(tmp_path, temporary=True)


# The program it runs.


def test_the_program_is_the_argument_or_the_variable_or_on_the_path_or_packaged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    argument, variable, on_path = (a_program(tmp_path / name / "mongod") for name in ("1", "2", "3"))
    monkeypatch.setenv("MONQUE_MONGOD", str(variable))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_mongod(argument) == argument
    assert find_mongod() == variable

    monkeypatch.delenv("MONQUE_MONGOD")
    assert find_mongod() == on_path

    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_mongod().parts[-4:] == ("fiftyone", "db", "bin", "mongod")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EmbeddedMongoError, match=r"pymonque\[embedded\].*MONQUE_MONGOD.*MONQUE_URI"):
        find_mongod()


def test_a_named_program_that_cannot_be_run_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And no reason to take the next best."""
    with pytest.raises(EmbeddedMongoError, match=f"mongod={tmp_path}/missing is no file"):
        find_mongod(tmp_path / "missing")

    (tmp_path / "text").touch()
    monkeypatch.setenv("MONQUE_MONGOD", str(tmp_path / "text"))
    with pytest.raises(EmbeddedMongoError, match=f"MONQUE_MONGOD={tmp_path}/text is not executable"):
        find_mongod()


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("#!/bin/sh\nexit 3\n", "fake ended with exit code 3, like no mongod: name a mongod"),
        ("#!/bin/sh\necho \"$0: unrecognized option '--dbpath'\"; exit 2\n", "is no mongod that we can use"),
        ("hello", r"fake cannot be executed on this system \(Exec format error"),
        ("#!/lib/ld-of-another-libc\n", r"cannot be executed .* \(No such file.* musl .*: name a mongod"),
        (
            "#!/bin/sh\necho error while loading shared libraries: libcurl.so.4: cannot open; exit 127\n",
            "mongod needs libcurl: install it with `apt-get install libcurl4`",
        ),
    ],
)
def test_a_program_that_is_no_usable_mongod_is_explained(
    data_dir: Path, tmp_path: Path, program: str, sentence: str
) -> None:
    with pytest.raises(EmbeddedMongoError, match=sentence):
        EmbeddedMongo(data_dir, mongod=a_program(tmp_path / "fake", program)).__enter__()


def test_damaged_data_is_explained(data_dir: Path) -> None:
    data_dir.mkdir()
    for name in ("WiredTiger", "WiredTiger.wt", "WiredTiger.turtle"):
        (data_dir / name).write_text("?")

    with pytest.raises(EmbeddedMongoError, match=f"the data in {data_dir} is damaged"):
        EmbeddedMongo(data_dir).__enter__()


def test_a_directory_that_another_mongod_uses_is_left_to_it(data_dir: Path, root: Path) -> None:
    data_dir.mkdir()
    path = root / "foreign.sock"
    command = [find_mongod(), "--dbpath", data_dir, "--bind_ip", path, "--nounixsocket"]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as foreign,
        socket.socket(socket.AF_UNIX) as probe,
    ):
        eventually(lambda: probe.connect_ex(str(path)) == 0)

        with pytest.raises(EmbeddedMongoError, match=f"another mongod uses {data_dir}"):
            EmbeddedMongo(data_dir).__enter__()
        assert foreign.poll() is None
        foreign.terminate()


@pytest.mark.parametrize(
    ("log", "exit_code", "sentence"),
    [
        (
            "error while loading shared libraries: libssl.so.3: cannot open",
            127,
            "mongod needs libssl.so.3: install",
        ),
        ("mongod: /lib/libc.so.6: version `GLIBC_2.34' not found", 1, "another system (one with GLIBC_2.34)"),
        ('{"t":1,"s":"E","msg":"pwrite: No space left on device"}', -6, "no space left on the disk of /data"),
        ('{"t":1,"s":"F","msg":"Wrong mongod version"}', 62, "another version of MongoDB than /bin/mongod"),
        ('{"t":1,"s":"E","error":"Permission denied"}', 100, "mongod may not write in /data"),
        (
            '{"t":1,"s":"I","ctx":"x","msg":"No space left on device"}',
            9,
            "exit code 9; its log is /data/mongod.log",
        ),
        ("", -signal.SIGILL, "this processor cannot run /bin/mongod (MongoDB needs AVX)"),
        ("", None, "/bin/mongod does not answer; its log is /data/mongod.log"),
    ],
)
def test_the_error_explains_what_mongod_left_behind(log: str, exit_code: int, sentence: str) -> None:
    plan = a_plan(Path("/data"), socket_path=Path("/s"), mongod="/bin/mongod")

    assert sentence in supervisor.explain(plan, log, exit_code)


async def test_on_windows_the_error_says_to_name_a_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")

    with pytest.raises(EmbeddedMongoError, match=r"not available on Windows: .* MONQUE_URI"):
        await EmbeddedMongo(tmp_path).start()


def a_plan(data_dir: Path, *, socket_path: Path, mongod: str | None = None) -> supervisor.Plan:
    return supervisor.Plan(
        mongod=mongod or str(find_mongod()), data_dir=data_dir, socket=socket_path, temporary=False
    )
