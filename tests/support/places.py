"""Where the data of the tests is: in memory if there is room, and gone after each test."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from support.aliases import Database

_MEMORY = Path("/dev/shm")
# All test processes together need about one. With a few more, no program beside them is short of memory.
_ENOUGH = 4 * 1024**3


def use_memory() -> None:
    """Let the servers of the tests, and the programs that tests start, write to memory.

    Most of the time of a short test is mongod waiting for the disk: it syncs a file for each new index. No
    test can tell the difference, since none of them cuts the power. Whoever names a TMPDIR gets that one.
    """
    if "TMPDIR" not in os.environ and _MEMORY.is_dir() and _is_fit(os.statvfs(_MEMORY)):
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None  # it is looked up once


def short_folder() -> str:
    """A folder with a short path, for sockets; the temporary folder of macOS is too long for them."""
    return str(_MEMORY) if tempfile.gettempdir() == str(_MEMORY) else "/tmp"


def _is_fit(place: os.statvfs_result) -> bool:
    """Whether there is room, and programs may be run from there: some tests write one."""
    return place.f_bavail * place.f_frsize >= _ENOUGH and not place.f_flag & os.ST_NOEXEC


async def drop_collections(database: Database) -> None:
    """Drop all there is.

    `dropDatabase` would wait for the next write of the journal, which comes every tenth of a second; a
    database without collections does not exist either.
    """
    for name in await database.list_collection_names():
        await database.drop_collection(name)
