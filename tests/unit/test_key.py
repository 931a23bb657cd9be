"""The key of dashboards without `auth`: where it comes from, and what is not trusted."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from monque.web.access.key import Key, NoKeyError, find_key, key_of_process


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the key of a user is, who has none yet."""
    monkeypatch.delenv("MONQUE_WEB_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = "Library/Application Support" if sys.platform == "darwin" else "data"
    return tmp_path / folder / "monque" / "web" / "key"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_look_makes_a_file_that_only_its_user_can_read(file: Path) -> None:
    before = os.umask(0)
    try:
        key = find_key()
    finally:
        os.umask(before)

    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert file.read_text().strip() == key.secret
    assert len(key.secret) >= 43  # 256 bits
    assert key.kept == str(file)
    assert key.secret not in repr(key)
    assert find_key() == key
    assert list(file.parent.iterdir()) == [file]


def test_the_environment_goes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONQUE_WEB_KEY", " of this test\n")
    assert find_key().secret == "of this test"
    assert not file.exists()


def test_processes_that_start_together_have_one_key() -> None:
    command = [sys.executable, "-c", "from monque.web.access.key import find_key; print(find_key().secret)"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    keys = {process.communicate(timeout=60)[0].strip() for process in started}
    assert len(keys) == 1
    assert keys == {find_key().secret}


def a_link(file: Path) -> None:
    real = file.with_name("real")
    file.rename(real)
    file.symlink_to(real)


def readable(file: Path) -> None:
    file.chmod(0o640)


def writable(file: Path) -> None:
    file.chmod(0o602)


def empty(file: Path) -> None:
    file.write_text("\n")


def not_ascii(file: Path) -> None:
    file.write_text("schlüssel")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir(mode=0o700)


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def a_link_to_its_folder(file: Path) -> None:
    real = file.parent.with_name("elsewhere")
    file.parent.rename(real)
    file.parent.symlink_to(real)


def of_another_user(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, 65534, 65534)


def in_a_folder_of_another_user(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(file.parent, 65534, 65534)


def without_a_place(file: Path) -> None:
    for path in (file, file.parent, file.parent.parent):
        path.unlink() if path.is_file() else path.rmdir()
    file.parent.parent.write_text("no folder")


UNTRUSTED = [
    a_link,
    readable,
    writable,
    empty,
    not_ascii,
    a_folder,
    a_pipe,
    a_link_to_its_folder,
    of_another_user,
    in_a_folder_of_another_user,
    without_a_place,
]


@pytest.mark.parametrize("spoil", UNTRUSTED, ids=lambda spoil: spoil.__name__)
def test_a_file_that_others_could_know_or_have_written_is_refused(
    file: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    known = find_key()
    spoil(file)

    with pytest.raises(NoKeyError, match="monque"):
        find_key()
    own = key_of_process()
    assert own.secret != known.secret
    assert len(own.secret) >= 43
    assert "the key of this process is used" in caplog.text
    assert own.secret not in caplog.text


def test_a_folder_of_this_user_that_others_could_enter_is_closed(file: Path) -> None:
    known = find_key()
    file.parent.chmod(0o755)
    assert find_key() == known
    assert mode(file.parent) == 0o700


def test_a_key_that_is_no_text_of_a_header_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONQUE_WEB_KEY", "schlüssel")
    with pytest.raises(NoKeyError, match="MONQUE_WEB_KEY"):
        find_key()


def test_a_link_holds_any_key() -> None:
    assert Key("a b&c+d", "here").link("http://localhost/") == "http://localhost/?key=a%20b%26c%2Bd"


def test_where_a_file_has_no_owner_only_the_variable_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows."""
    monkeypatch.delattr(os, "geteuid")

    with pytest.raises(NoKeyError, match="set MONQUE_WEB_KEY"):
        find_key()
    monkeypatch.setenv("MONQUE_WEB_KEY", "of this test")
    assert find_key().secret == "of this test"
