"""The CPU that processes took, and the process of the server."""

from __future__ import annotations

import os
import time
from pathlib import Path


def of_this_process() -> float:
    """Seconds that this process took, and those of its children that have ended."""
    times = os.times()
    # Not user and system from there: they come in steps of 10 ms.
    return time.process_time() + times.children_user + times.children_system


def of_process(pid: int) -> float:
    """Seconds that another process took; 0 where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    return seconds_in(stat, os.sysconf("SC_CLK_TCK"))


def seconds_in(stat: str, ticks: int) -> float:
    """The user and system time in the text of /proc/PID/stat."""
    # The program's name, in parentheses, may contain spaces and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / ticks


def mongod_of(socket: str) -> int | None:
    """The process that serves this socket; None where there is no /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if command[0].endswith(b"mongod") and any(socket.encode() in part for part in command):
            return int(folder.name)
    return None
