"""Starting a child process: its interpreter, the line to it, and what it must know before it can be asked."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from monque._store.document import Document
from monque._workers.address import main_source

# Runs before anything of ours can be imported: the parent may have found us by a path of its own.
_BOOT = (
    "import json, sys; boot = json.loads(sys.stdin.buffer.read()); sys.path[:] = boot['path']; "
    "from monque._engine.child import main; main(boot)"
)


def spawn() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a child process, and return it with our end of the line to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = _popen(theirs)
        except BaseException:
            ours.close()
            raise
        boot = {**_boot(), **_end_of_line(theirs, process)}
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(boot).encode())  # a few kB: it fits into the pipe, and does not block
    return process, ours


def _popen(theirs: socket.socket) -> subprocess.Popen[bytes]:
    # The same switches as those of this interpreter, as `multiprocessing` does it.
    switches = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # not in typeshed
    # -P: modules in the current folder must not hide those of the standard library before the path is set.
    command = [sys.executable, *switches, "-P", "-c", _BOOT]
    if sys.platform == "win32":
        return subprocess.Popen(command, stdin=subprocess.PIPE)
    with _blocked_signals():
        # In a group of its own: what the handler starts is in it, too, and ends with the child.
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()], process_group=0)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Let a new process begin with these signals blocked, until it has handlers for them.

    A signal for all processes of a group must not end a child that has just been started.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _boot() -> Document:
    """What a child has to know before it can be asked for anything."""
    known = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    levels = {each.name: each.level for each in known if each.level}
    return {
        "path": [each for each in sys.path if isinstance(each, str)],
        "arguments": sys.argv,
        "main": main_source(),
        "parent": os.getpid(),
        "levels": {"": logging.root.level, **levels},
        "disabled": logging.root.manager.disable,
    }


def _end_of_line(theirs: socket.socket, process: subprocess.Popen[bytes]) -> Document:
    if sys.platform == "win32":
        return {"share": b64encode(theirs.share(process.pid)).decode()}
    return {"descriptor": theirs.fileno()}
