"""The embedded server is reachable by its own user alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from monque.embedded import EmbeddedMongo

NOBODY = 65534

# It becomes the user first, then tries every door, and says for each how it went.
INTRUDER = """
import json, os, socket, sys
user, *paths = json.loads(sys.argv[1])
os.setgroups([]), os.setgid(user), os.setuid(user)

def tried(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"

def connect(path):
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(5)
        door.connect(path)

doors, folders = paths
outcomes = [tried(lambda: connect(path)) for path in doors]
outcomes += [tried(lambda: os.listdir(path)) for path in folders]
print(json.dumps(outcomes))
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Everybody may enter it, so that only the rights of what is made there keep them out."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def try_as(user: int, doors: list[Path], folders: list[Path]) -> list[str]:
    """What happens to a user who tries to connect to sockets and to look into folders."""
    plan = json.dumps([user, [str(door) for door in doors], [str(folder) for folder in folders]])
    tried = subprocess.run(
        [sys.executable, "-I", "-S", "-c", INTRUDER, plan],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return list(json.loads(tried.stdout))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to try it")
@pytest.mark.parametrize("temporary", [False, True], ids=["lasting", "temporary"])
def test_another_user_can_neither_connect_nor_read_the_data(public_folder: Path, temporary: bool) -> None:
    data_dir = None if temporary else public_folder / "data"
    with EmbeddedMongo(data_dir, temporary=temporary) as server:
        mongod = Path(unquote(server.uri.partition("://")[2].partition("/?")[0]))
        control = Path(json.loads((server.data_dir / "monque.lock").read_text())["control"])
        doors, folders = [mongod, control], [server.data_dir, mongod.parent]

        assert try_as(os.geteuid(), doors, folders) == ["done"] * 4
        assert try_as(NOBODY, doors, folders) == ["PermissionError"] * 4


def test_everything_it_makes_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with EmbeddedMongo(tmp_path / "data") as server:
            mongod = Path(unquote(server.uri.partition("://")[2].partition("/?")[0]))
            modes = {
                path: stat.S_IMODE(path.stat().st_mode) for path in (server.data_dir, mongod.parent, mongod)
            }
    finally:
        os.umask(before)

    assert set(modes.values()) == {0o700}
