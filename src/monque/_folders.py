"""Folders of the user that a process runs as."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path


def user_data() -> Path:
    """The folder in which programs of this user keep their data.

    Raises:
        RuntimeError: The user has no home.
    """
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def make_private(folder: Path) -> bool:
    """Make a folder that only this user can enter; False if it is there and is another user's, or a link."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_ours(folder):
        return False
    folder.chmod(0o700)
    return True


def is_ours(folder: Path) -> bool:
    """Tell a folder of this user from a link, and from a folder of somebody else."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
