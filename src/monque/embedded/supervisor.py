"""Own one mongod for as long as somebody uses it.

A client of `monque.embedded` runs this file by its path; it imports the standard library alone, so that
it is up in a moment. Its life:

1. Detach, and wait for the locks. Whoever holds them is *the* supervisor of this data directory.
2. Listen on the control socket, start mongod, tell every client one JSON line: ready, or what is wrong.
3. A client is a connection. The kernel closes it when the client dies, however it dies. When the last one
   has been gone for the linger time, stop mongod and end.

If this process is killed, the kernel kills mongod too (Linux), or the next supervisor ends it (elsewhere).
"""

import errno
import fcntl
import json
import os
import re
import resource
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Self

OPEN_FILES = 64_000
"""Files that mongod may have open: what MongoDB recommends. Many systems do not allow more."""
LINGER = 1.0
"""Seconds without a client before mongod is stopped, so that a restarted program finds it running."""
START_TIMEOUT = 120.0
"""Seconds until mongod must answer. It needs one; after a crash it repairs its data, which takes longer on a
slow disk."""
STOP_TIMEOUT = 15.0
"""Seconds for a clean stop, which writes a checkpoint. After twice as long clients would no longer expect to
reach the next supervisor (`JOIN_TIMEOUT`)."""
TICK = 0.01
"""Seconds between two attempts: they delay every start, and cost CPU."""
IDLE_TICK = 60.0
"""Seconds between two checks of the size of the log, which grows slowly."""
LOG_LIMIT = 4_000_000
"""Bytes of the log; one older log is kept. The reason of a crash must still be in it."""
PARAMETERS = {
    "diagnosticDataCollectionEnabled": "false",
    "minSnapshotHistoryWindowInSeconds": "0",
}
"""Nobody reads the diagnostics, which are written all the time. Old versions of documents and index entries
are kept for 300 seconds by default, for reads at a time in the past. Polls walk through them, and they cost
a tenth of the server's CPU for each job; half the time costs about half of that. An open transaction still
sees its snapshot."""
FULL = 500_000
"""A disk with fewer free bytes counts as full. It only chooses a message, so the exact value is no matter."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The mongod, its folder and its socket; chosen by the client that starts this supervisor."""

    mongod: str
    data_dir: Path
    socket: Path
    temporary: bool

    @property
    def control(self) -> Path:
        return self.socket.with_suffix(".control")

    @property
    def locks(self) -> tuple[Path, Path]:
        """One for the data, one for the sockets.

        The second matters when the data directory is deleted and made anew while its server still runs:
        the new lock file is free, but the old mongod removes its socket, by name, when it ends.
        """
        return self.data_dir / "monque.lock", self.socket.with_suffix(".lock")

    @property
    def log(self) -> Path:
        return self.data_dir / "mongod.log"

    @property
    def command(self) -> list[str]:
        options = {
            "--dbpath": self.data_dir,
            "--replSet": "monque",
            "--bind_ip": self.socket,
            "--filePermissions": "0700",
            "--oplogSize": 64,
            "--wiredTigerCacheSizeGB": 0.5,  # with less, the largest jobs do not fit
            # The journal stays on. Its files would be filled in advance: 300 MB for an empty database.
            "--wiredTigerEngineConfigString": "log=(prealloc=false,file_max=8MB)",
            "--networkMessageCompressors": "disabled",
            "--logpath": self.log,
            "--logRotate": "reopen",
        }
        words = [str(word) for option in options.items() for word in option]
        for name, value in PARAMETERS.items():
            words += ["--setParameter", f"{name}={value}"]
        # Without --nounixsocket it would take /tmp/mongodb-27017.sock away from the system's own mongod.
        return [self.mongod, *words, "--nounixsocket", "--logappend", "--quiet"]


def main() -> None:
    """Supervise, in a process that is nobody's child."""
    if os.fork():
        os._exit(0)
    mongod, data_dir, path, life = sys.argv[1:]
    plan = Plan(mongod=mongod, data_dir=Path(data_dir), socket=Path(path), temporary=life == "temporary")
    first = socket.socket(fileno=os.dup(0))
    os.umask(0o077)
    # The client may have blocked signals; mongod would inherit that and never hear SIGTERM.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    allow_open_files()
    try:
        supervise(plan, first)
    except OSError as error:
        tell(first, error=cannot_run(plan, error))


def allow_open_files() -> None:
    """Raise the limit of open files, as far as this user may: mongod ends itself when it meets the limit.

    It has a file open for each collection and each index, and most systems allow 1,024 unless one asks.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has another limit, which it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def supervise(plan: Plan, first: socket.socket) -> None:
    """Run mongod for *first* and all clients that connect, unless *first* finds another supervisor before."""
    plan.data_dir.mkdir(exist_ok=not plan.temporary)
    locks = take_locks(plan, first)
    if locks is None:
        return
    try:
        log_output(plan)
        clients = Clients(plan, first)
        publish(plan, locks[0])
        end_leftover(plan)
        with Mongod(plan) as mongod:
            serve(mongod, clients)
    finally:
        clean_up(plan, locks[0])


def serve(mongod: "Mongod", clients: "Clients") -> None:
    """Keep mongod running until no client is left; say when it is ready, and why if it fails."""
    if ready(mongod, clients):
        clients.announce(socket=str(mongod.plan.socket))
        while not (mongod.ended() or clients.gone):
            clients.wait(IDLE_TICK)
            mongod.keep_log_small()
    if not clients.gone:
        clients.announce(error=mongod.obituary())
    # The door first, then mongod: who knocks from now on sees the connection end, or finds no door, and
    # starts a supervisor of its own, which waits for our locks. Nobody is given a dying server.
    clients.close()


def ready(mongod: "Mongod", clients: "Clients") -> bool:
    deadline = time.monotonic() + START_TIMEOUT
    while not mongod.answers():
        if mongod.ended() or clients.gone or time.monotonic() > deadline:
            return False
        clients.wait(TICK)
    return True


def take_locks(plan: Plan, first: socket.socket) -> list[BufferedRandom] | None:
    """Wait for the locks, or until *first* hangs up because it is served by their holder."""
    locks = [path.open("ab+") for path in plan.locks]
    for lock in locks:
        while not locked(lock):
            # A client says nothing, so that something to read is the end of its connection.
            if select.select([first], [], [], TICK)[0]:
                return None
    return locks


def locked(file: BufferedRandom) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def publish(plan: Plan, lock: BufferedRandom) -> None:
    """Say in the lock file where we listen: a client with another TMPDIR would look elsewhere.

    The inode tells this file from a copy: a copied data directory must not lead to the original's server.
    """
    lock.truncate(0)
    lock.write(json.dumps({"control": str(plan.control), "inode": os.fstat(lock.fileno()).st_ino}).encode())
    lock.flush()


def log_output(plan: Plan) -> None:
    """Let errors of this program, and what mongod says before it opens its log, go to that log."""
    rotate(plan.log)
    with plan.log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def clean_up(plan: Plan, lock: BufferedRandom) -> None:
    plan.control.unlink(missing_ok=True)
    plan.socket.unlink(missing_ok=True)
    lock.truncate(0)
    if plan.temporary:
        shutil.rmtree(plan.data_dir, ignore_errors=True)
        plan.locks[1].unlink(missing_ok=True)


class Clients:
    """The connections that keep mongod running, and the line that each of them gets."""

    def __init__(self, plan: Plan, first: socket.socket) -> None:
        self.control = plan.control
        self.linger = 0.0 if plan.temporary else LINGER
        self.told_to_end = False
        self.answer: dict[str, str] = {}
        self.connections = {first}
        self.last_gone: tuple[float, socket.socket] | None = None
        self.selector = selectors.DefaultSelector()
        self.selector.register(first, selectors.EVENT_READ, self._leave)
        self.listener = self._listen()
        self._wake_on_signals()

    @property
    def patience(self) -> float:
        """Seconds until they count as gone."""
        if self.told_to_end:
            return 0.0
        if self.connections or self.last_gone is None:
            return float("inf")
        return max(0.0, self.last_gone[0] + self.linger - time.monotonic())

    @property
    def gone(self) -> bool:
        return self.patience == 0.0

    def wait(self, seconds: float) -> None:
        """Handle what happens next, for at most *seconds*."""
        for key, _ in self.selector.select(min(seconds, self.patience)):
            key.data(key.fileobj)

    def announce(self, **answer: str) -> None:
        """Send the answer to all clients, and to those who connect later."""
        self.answer = answer
        for connection in self.connections:
            tell(connection, **answer)

    def close(self) -> None:
        """Accept no more clients."""
        self.control.unlink(missing_ok=True)
        self.listener.close()
        for connection in self.connections:
            connection.close()

    def _listen(self) -> socket.socket:
        self.control.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.control))
        listener.listen(128)
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, self._welcome)
        return listener

    def _welcome(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):
            connection = listener.accept()[0]
            self.connections.add(connection)
            self.selector.register(connection, selectors.EVENT_READ, self._leave)
            if self.answer:
                tell(connection, **self.answer)

    def _leave(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        self.connections.remove(connection)
        # Keeping the last one open lets its client wait for our end: see the `stop` of a temporary server.
        self.last_gone = (time.monotonic(), connection)

    def _wake_on_signals(self) -> None:
        """Let the end of mongod, and a signal to end, interrupt a wait."""
        ear, self.bell = socket.socketpair()
        self.bell.setblocking(False)
        self.selector.register(ear, selectors.EVENT_READ, lambda _: ear.recv(4096))
        signal.set_wakeup_fd(self.bell.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for wish in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(wish, self._told_to_end)

    def _told_to_end(self, *_: object) -> None:
        self.told_to_end = True


def tell(connection: socket.socket, **answer: str) -> None:
    with suppress(OSError):
        connection.sendall(json.dumps(answer).encode() + b"\n")


class Mongod:
    """The server process, from its start to its end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.log_start = plan.log.stat().st_size
        plan.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            plan.command,
            stdin=subprocess.DEVNULL,
            preexec_fn=dying_with_us() if sys.platform == "linux" else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it: cleanly, or by force when that takes too long or the data is not kept anyway."""
        if not self.plan.temporary:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_TIMEOUT)
        self.process.kill()
        self.process.wait()

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.plan.socket)) == 0

    def ended(self) -> bool:
        return self.process.poll() is not None

    def keep_log_small(self) -> None:
        if rotate(self.plan.log):
            self.log_start = 0
            self.process.send_signal(signal.SIGUSR1)  # reopen the log

    def obituary(self) -> str:
        """Return the reason why it cannot be used, in a sentence."""
        if shutil.disk_usage(self.plan.data_dir).free < FULL:
            # Then the log does not say so: it is on that disk too.
            return explain(self.plan, os.strerror(errno.ENOSPC), self.process.poll())
        with self.plan.log.open("rb") as log:
            log.seek(self.log_start)
            return explain(self.plan, log.read().decode(errors="replace"), self.process.poll())


def rotate(log: Path) -> bool:
    """Put a log that has grown big aside, over the previous one."""
    if not log.exists() or log.stat().st_size < LOG_LIMIT:
        return False
    log.replace(log.with_suffix(".log.1"))
    return True


def dying_with_us() -> Callable[[], None]:
    """Make the child die with this process, whatever kills it.

    The kernel watches the *thread* that forks: this program has only one, an application may have many.
    """
    import ctypes

    prctl, pr_set_pdeathsig = ctypes.CDLL(None).prctl, 1
    parent = os.getpid()

    def in_child() -> None:
        prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


def end_leftover(plan: Plan) -> None:
    """End a mongod that outlived its supervisor, and wait for one that is dying."""
    try:
        pid = int((plan.data_dir / "mongod.lock").read_text())
    except (FileNotFoundError, ValueError):
        return
    ours = " ".join(plan.command[1:5])  # --dbpath ... --replSet ...
    for wish in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_TIMEOUT
        while ours in command_line(pid) and time.monotonic() < deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, wish)
            time.sleep(TICK)


def command_line(pid: int) -> str:
    """The command line of a process; empty when it has ended, even if nobody has reaped it."""
    if sys.platform != "linux":
        ps = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
        return os.fsdecode(ps.stdout)
    with suppress(FileNotFoundError, ProcessLookupError):
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).replace("\0", " ")
    return ""


WAY_OUT = "name a mongod for this system in MONQUE_MONGOD, or a running server in MONQUE_URI"
REASONS = {
    r"shared libraries: libcurl\.so": "mongod needs libcurl: install it with `apt-get install libcurl4`",
    r"shared libraries: ([^:\s]+)": "mongod needs {found}: install that, or {way_out}",
    r"version `(\S+)' not found": "{mongod} is built for another system (one with {found}): {way_out}",
    r"(unrecogni[sz]ed option)": "{mongod} is no mongod that we can use ({found}): {way_out}",
    r"No space left on device": "there is no space left on the disk of {data_dir}",
    r"DBPathInUse": "another mongod uses {data_dir}: stop it, or name another folder in MONQUE_DATA_DIR",
    r"read-only directory|Permission denied": "mongod may not write in {data_dir}: look who owns what there",
    r"Wrong mongod version|unsupported WiredTiger file version|too recent to start up": (
        "the data in {data_dir} is of another version of MongoDB than {mongod}: name one of that version "
        "in MONQUE_MONGOD, or another folder in MONQUE_DATA_DIR"
    ),
    r"corruption": (
        "the data in {data_dir} is damaged, or of another version of MongoDB than {mongod}: "
        "name another folder in MONQUE_DATA_DIR"
    ),
}


def explain(plan: Plan, log: str, exit_code: int | None) -> str:
    """Turn what mongod left behind into a sentence."""
    facts = {"mongod": plan.mongod, "data_dir": plan.data_dir, "way_out": WAY_OUT}
    errors = [line for line in log.splitlines() if not re.match(r'{"t":.*?"s":"[DIW]', line)]
    for pattern, sentence in REASONS.items():
        if match := re.search(pattern, "\n".join(errors)):
            return sentence.format(found=match[match.lastindex or 0], **facts)
    if exit_code is None:
        return f"{plan.mongod} does not answer; its log is {plan.log}"
    if exit_code == -signal.SIGILL:
        return f"this processor cannot run {plan.mongod} (MongoDB needs AVX): {WAY_OUT}"
    if '"ctx":' not in log:
        return f"{plan.mongod} ended with exit code {exit_code}, like no mongod: {WAY_OUT}"
    return f"{plan.mongod} ended with exit code {exit_code}; its log is {plan.log}"


def cannot_run(plan: Plan, error: OSError) -> str:
    if error.filename == plan.mongod:
        return (
            f"{plan.mongod} cannot be executed on this system ({error.strerror}; the packaged one runs on "
            f"Debian and Ubuntu, and not with musl as on Alpine): {WAY_OUT}"
        )
    return (
        f"the embedded MongoDB cannot run in {plan.data_dir}: {error}; name another folder in MONQUE_DATA_DIR"
    )


if __name__ == "__main__":
    main()
