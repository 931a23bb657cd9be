"""`monque demo --web`: a shop that never sleeps, from its first line to its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from support.places import short_folder
from support.waiting import eventually
from support.web import KEY

SHOP = [sys.executable, "-m", "monque", "demo", "--web", "--port", "0", "--seed", "3"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder of its own: what is in it afterwards was left behind by the shop."""
    with tempfile.TemporaryDirectory(dir=short_folder(), prefix="shop") as folder:
        yield Path(folder)


def start(folder: Path, **more: str) -> subprocess.Popen[str]:
    # No screen: the test must not open a browser of whoever runs it.
    screen = dict.fromkeys(("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"), "")
    environment = {**os.environ, **screen, "BROWSER": "true", "TMPDIR": str(folder), **more}
    return subprocess.Popen(SHOP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ask(address: str, path: str) -> Any:
    with urlopen(with_key(f"{address}api/ops/v1/{path}"), timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def address_of(shop: subprocess.Popen[str]) -> str:
    assert shop.stdout is not None
    line = shop.stdout.readline()
    found = re.fullmatch(
        r"The shop is open: (http://127\.0\.0\.1:\d+/)(\?key=\S+) \(Ctrl-C closes it\)\n", line
    )
    assert found, line or shop.communicate(timeout=60)[1]
    assert found[2] == f"?key={KEY}"
    return found[1]


def with_key(address: str) -> Request:
    return Request(address, headers={"Authorization": f"Bearer {KEY}"})  # noqa: S310


@contextmanager
def open_tab(address: str) -> Iterator[None]:
    """A browser that listens to the stream."""
    with urlopen(with_key(f"{address}api/ops/v1/stream"), timeout=30) as stream:  # noqa: S310
        assert stream.readline()
        yield


def files_in(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.timeout(180)
async def test_the_shop_moves_fails_loses_an_instance_and_ends_without_a_trace(folder: Path) -> None:
    shop = start(folder)
    try:
        address = address_of(shop)
        instances = ask(address, "instances")["instances"]
        pids = {instance["pid"] for instance in instances}
        assert {instance["id"] for instance in instances} == {"shop-1", "shop-2", "shop-3"}
        first = ask(address, "overview?window=24h")
        assert sum(row[1] for row in first["series"]["rows"]) > 100_000, "a day of trends is there"

        def check_life() -> None:
            overview = ask(address, "overview?window=15m")
            assert overview["snapshot"]["seq"] > first["snapshot"]["seq"]
            assert overview["snapshot"]["totals"]["stored"] > first["snapshot"]["totals"]["stored"]
            assert len(ask(address, "failures?window=24h")["groups"]) >= 4
            states = {each["id"]: each["state"] for each in ask(address, "instances")["instances"]}
            assert states["shop-3"] == "silent"

        await eventually(check_life, within=60)
        pids |= {instance["pid"] for instance in ask(address, "instances")["instances"]}
        with open_tab(address):
            shop.send_signal(signal.SIGINT)
            rest, errors = shop.communicate(timeout=60)
    finally:
        shop.kill()
        shop.wait()
    assert (shop.returncode, errors) == (0, "")
    assert rest.endswith("The shop is closed. Nothing is left behind.\n")
    assert [pid for pid in pids if is_alive(pid)] == []
    assert files_in(folder) == []


@pytest.mark.timeout(120)
async def test_instances_end_with_a_shop_that_is_killed(folder: Path) -> None:
    shop = start(folder)
    try:
        address = address_of(shop)
        pids = [instance["pid"] for instance in ask(address, "instances")["instances"]]
    finally:
        shop.kill()
        shop.communicate(timeout=60)

    def check_gone() -> None:
        assert [pid for pid in pids if is_alive(pid)] == []

    await eventually(check_gone, within=60)


def test_without_a_usable_mongod_the_shop_says_so_and_fails(folder: Path) -> None:
    shop = start(folder, MONQUE_MONGOD="/nowhere/mongod")
    rest, errors = shop.communicate(timeout=60)

    assert (shop.returncode, rest) == (1, "")
    assert errors.startswith("The shop needs a MongoDB and cannot start one: MONQUE_MONGOD=/nowhere/mongod")
    assert "Traceback" not in errors
