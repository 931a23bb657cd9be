"""This machine and its processes: whether a process that was described earlier is gone.

Only Linux tells, in `/proc`, and a sandbox may hide it there. Reading and judging are apart: what was read is
a value, and the judgement a pure function of it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Fate: TypeAlias = Literal["gone", "alive", "unknown"]

_ENDED = (b"Z", b"X")
_START = 19  # among the fields of `/proc/PID/stat` that follow the name of the program


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process and the machine on which it runs; None stands for what could not be read."""

    boot_id: str | None = None
    pid_namespace: str | None = None
    pid: int | None = None
    start: int | None = None
    """The time at which it began, in ticks after the boot: a later process may have the same pid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The process that has a pid now, if there is one; without a start, nothing else is known about it."""

    exists: bool
    is_zombie: bool = False
    start: int | None = None


def fate_of(earlier: Process) -> Fate:
    """Look for a process that was described earlier, perhaps on another machine."""
    here = this_process()
    if not is_same_machine(earlier, here) or earlier.pid is None:
        return "unknown"
    return judge(earlier, here, look_up(earlier.pid))


def judge(earlier: Process, here: Process, seen: Sighting) -> Fate:
    """Decide from what was read. What cannot be known is never taken for gone."""
    if not is_same_machine(earlier, here) or earlier.pid is None or earlier.start is None:
        return "unknown"
    if not seen.exists or seen.is_zombie:
        return "gone"
    return "alive" if seen.start in (earlier.start, None) else "gone"


def is_same_machine(one: Process, other: Process) -> bool:
    """Compare the boots and pid namespaces of two processes; False if one could not be read."""
    places = [(each.boot_id, each.pid_namespace) for each in (one, other)]
    return None not in places[0] and places[0] == places[1]


def this_process() -> Process:
    """Read what tells this process from others."""
    pid = os.getpid()
    if _target("/proc/self") != str(pid):  # elsewhere than on Linux; or it shows another pid namespace
        return Process(pid=pid)
    return Process(
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_target("/proc/self/ns/pid"),
        pid=pid,
        start=look_up(pid).start,
    )


def look_up(pid: int) -> Sighting:
    """Look for a process of this machine."""
    try:
        os.kill(pid, 0)  # `/proc` may hide the processes of other users
    except ProcessLookupError:
        return Sighting(exists=False)
    except (PermissionError, OverflowError):
        return Sighting(exists=True)
    with suppress(OSError, ValueError, IndexError):
        # The name of the program may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return Sighting(exists=True, is_zombie=fields[0] in _ENDED, start=int(fields[_START]))
    return Sighting(exists=True)


def _text(file: str) -> str | None:
    with suppress(OSError, ValueError):
        return Path(file).read_text().strip() or None
    return None


def _target(link: str) -> str | None:
    with suppress(OSError):
        return str(Path(link).readlink())
    return None
