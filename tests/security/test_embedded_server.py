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

from monque.embedded import EmbeddedMongo, EmbeddedMongoError

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


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.parametrize("has_data", [False, True], ids=["empty", "with data"])
def test_an_existing_folder_of_this_user_becomes_private_and_the_log_says_so(
    tmp_path: Path, has_data: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    if has_data:
        with EmbeddedMongo(data_dir):
            pass
    data_dir.chmod(0o755)
    caplog.clear()
    with EmbeddedMongo(data_dir):
        assert mode_of(data_dir) == 0o700
    assert f"others could look into {data_dir}; it is private now" in caplog.text


def test_a_folder_with_other_things_that_others_may_enter_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    tmp_path.chmod(0o755)
    with pytest.raises(
        EmbeddedMongoError, match=f"others may look into {tmp_path}, and it holds other things"
    ):
        EmbeddedMongo(tmp_path).__enter__()
    assert mode_of(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused_and_left_alone(public_folder: Path) -> None:
    data_dir = public_folder / "data"
    data_dir.mkdir()
    os.chown(data_dir, NOBODY, NOBODY)
    with pytest.raises(EmbeddedMongoError, match=f"{data_dir} belongs to another user"):
        EmbeddedMongo(data_dir).__enter__()
    assert (mode_of(data_dir), data_dir.stat().st_uid) == (0o755, NOBODY)
