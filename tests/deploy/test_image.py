"""The image: the steps of its Dockerfile, carried out in a clean folder, and the processes that it starts.

There is no Docker here. So a folder takes the place of `/`, the Python of the tests that of the base image,
and wheels of what is installed that of a registry. Everything else is the Dockerfile's own text.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from monque import Monque, __version__
from support.aliases import Collection
from support.clocks import ahead
from support.deploying import DEPLOY, manifest, option, steps
from support.jobs import claimed, document
from support.packaging import ROOT, Tree
from support.ports import free_port
from support.proxy import Proxy
from support.waiting import eventually

TOKEN = "of a secret"


class Image:
    """What the Dockerfile makes, with *root* in the place of `/`."""

    def __init__(self, root: Path, wheels: Path) -> None:
        self.root = root
        self.env: dict[str, str] = {}
        self.user = ""
        self.entrypoint: list[str] = []
        self.command: list[str] = []
        self._folder = root
        self._context = root / "context"
        shutil.copytree(DEPLOY, self._context)
        requirements = self._context / "requirements.txt"
        pinned = requirements.read_text()
        assert pinned == f"pymonque[cli,prometheus,web]=={__version__.partition('.dev')[0]}\n"
        requirements.write_text(re.sub("==.*", f"=={__version__}", pinned))
        self._machine = {"PATH": f"{_programs(root / 'bin')}:/usr/bin:/bin", "PIP_FIND_LINKS": str(wheels)}
        for step in steps():  # with the methods below
            getattr(self, f"_{step.instruction.lower()}")(self._below(step.text))

    def _below(self, text: str) -> str:
        """The same with paths below the root; those of the base image are below `/usr`."""
        return re.sub(r"(?<![\w.])/(?=opt|app|build)", f"{self.root}/", text)

    def _from(self, text: str) -> None:
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+( AS build)?", text)
        self.env, self._folder = {}, self.root

    def _workdir(self, text: str) -> None:
        self._folder = Path(text)
        self._folder.mkdir()

    def _copy(self, text: str) -> None:
        if text.startswith("--from=build"):
            _, source, target = text.split()
            assert source == target
            assert Path(source).exists()
        else:
            *sources, target = text.split()
            assert target == "./"
            for source in sources:
                shutil.copy(self._context / source, self._folder)

    def _run(self, text: str) -> None:
        quick = {"PIP_NO_INDEX": "1", "PIP_NO_COMPILE": "1", "PIP_NO_CACHE_DIR": "1"}
        done = subprocess.run(
            ["sh", "-euc", text],
            cwd=self._folder,
            env={**self._machine, **self.env, **quick},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _env(self, text: str) -> None:
        pairs = dict(pair.split("=", 1) for pair in shlex.split(text))
        self.env |= {name: value.replace("$PATH", "/usr/bin:/bin") for name, value in pairs.items()}

    def _user(self, text: str) -> None:
        self.user = text

    def _expose(self, text: str) -> None:
        assert text.split() == ["8081", "8787", "9464"]

    def _entrypoint(self, text: str) -> None:
        self.entrypoint = json.loads(text)

    def _cmd(self, text: str) -> None:
        self.command = json.loads(text)

    @asynccontextmanager
    async def running(self, arguments: list[str], **env: str) -> AsyncIterator[Running]:
        """Run a container with these arguments, on free ports of this machine alone."""
        ports = {name: free_port() for name in ("--port", "--health-port", "--metrics-port")}
        arguments = [*arguments, *(["--port", "8787"] if arguments[0] == "web" else [])]
        given = ["127.0.0.1" if each == "0.0.0.0" else each for each in arguments]  # noqa: S104
        for name in ports.keys() & set(given):
            given[given.index(name) + 1] = str(ports[name])
        uid, gid = map(int, self.user.split(":"))
        other = {"user": uid, "group": gid, "extra_groups": []} if _others_can_run(uid) else {}
        process = await asyncio.create_subprocess_exec(
            *self.entrypoint, *given, cwd=self._folder, env={**self.env, **env}, stderr=-1, **other
        )
        try:
            yield Running(process, ports, uid if other else os.getuid())
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


class Running:
    """A process of the image."""

    def __init__(self, process: asyncio.subprocess.Process, ports: dict[str, int], uid: int) -> None:
        self.process = process
        self.uid = uid
        self._ports = ports

    async def get(self, port: str, path: str) -> str:
        """The answer of one of its ports to who has the token."""
        address = f"http://127.0.0.1:{self._ports[port]}{path}"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})

        def read() -> str:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return str(answer.read().decode())

        return await asyncio.to_thread(read)

    def runs_as(self) -> int:
        """The user of the process, as the system says it."""
        return Path(f"/proc/{self.process.pid}").stat().st_uid

    async def is_ready(self) -> None:
        if self.process.returncode is not None:
            pytest.fail(f"it has ended: {await self.process.communicate()}")
        try:
            await self.get("--health-port", "/readyz")
        except OSError as error:
            raise AssertionError("not ready") from error

    async def ends(self) -> tuple[int, list[str]]:
        """Tell it to end; the exit code, and what it has logged."""
        self.process.send_signal(signal.SIGTERM)
        _, logged = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, logged.decode().splitlines()


def _others_can_run(uid: int) -> bool:
    """Whether this machine lets us start its Python as another user."""
    if os.getuid() != 0:
        return False
    try:
        return subprocess.run([sys.executable, "-c", ""], user=uid, extra_groups=[]).returncode == 0
    except PermissionError:
        return False


def _programs(folder: Path) -> Path:
    """The `python` and the `pip` of the base image."""
    folder.mkdir()
    for name, called in {"python": "", "pip": "-m pip"}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {called} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def _needed(requirement: Requirement, found: dict[str, Distribution]) -> None:
    """Find what is installed of a requirement and of all that it needs."""
    name = canonicalize_name(requirement.name)
    if name in found:
        return
    found[name] = distribution(name)
    for needed in map(Requirement, found[name].requires or ()):
        chosen = [{"extra": extra} for extra in ("", *requirement.extras)]
        if needed.marker is None or any(needed.marker.evaluate(extra) for extra in chosen):
            _needed(needed, found)


def _packed(installed: Distribution, folder: Path) -> None:
    """Make a wheel of what is installed."""
    [tag] = re.findall(r"^Tag: (\S+)", installed.read_text("WHEEL") or "", re.MULTILINE)[:1]
    name = canonicalize_name(installed.metadata["Name"]).replace("-", "_")
    with zipfile.ZipFile(folder / f"{name}-{installed.version}-{tag}.whl", "w") as wheel:
        for path in installed.files or ():
            if (
                path.parts[0] != ".."
                and path.suffix != ".pyc"
                and path.name not in ("INSTALLER", "REQUESTED")
            ):
                wheel.write(str(path.locate()), str(path))


@pytest.fixture
def image() -> Iterator[Image]:
    """Of this checkout. Its folder can be read by all users, which those of pytest cannot."""
    # Not in memory, as other folders of tests: programs may be forbidden there.
    with tempfile.TemporaryDirectory(prefix="monque-image-", dir="/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        wheels = root / "wheels"
        wheels.mkdir()
        Tree(ROOT, os.environ["PATH"]).build("wheel", wheels, MONQUE_UI="skip")
        found: dict[str, Distribution] = {}
        _needed(Requirement("pymonque[cli,prometheus,web]"), found)
        for name, installed in found.items():
            if name != "pymonque":
                _packed(installed, wheels)
        yield Image(root, wheels)


async def test_its_workers_and_its_dashboard_run_as_another_user_and_end_when_told(
    image: Image, database: Any, client: Any, collection: Collection
) -> None:
    """As Kubernetes starts them: with the arguments of the manifests, an own user, and no home."""
    name = "nobody-runs-this"
    later = document(name=name, nextRunAt=ahead(hours=1))
    await collection.insert_many([document(name=name), claimed("another", name=name), later])
    board = manifest("Deployment", "monque-web")["spec"]["template"]["spec"]["containers"][0]["args"]
    scaled = manifest("ScaledObject", "monque-worker", "keda-metrics-api.yaml")["spec"]["triggers"][0]

    async with Proxy(await client.address) as proxy, Monque(database) as monque:
        env = {"MONQUE_URI": proxy.uri(database.name)}
        secrets = {"MONQUE_WEB_PASSWORD": "of the user", "MONQUE_WEB_TOKEN": TOKEN}
        async with (
            image.running(image.command, **env) as worker,
            image.running(board, **env, **secrets) as web,
        ):
            job = await monque.enqueue("send-email", {"to": "ada@example.org"})
            assert (await monque.wait_for(job, timeout=timedelta(minutes=1))).log[
                0
            ].text == "sent to ada@example.org"
            for each in (worker, web):
                await eventually(each.is_ready, within=60)
                assert each.runs_as() == each.uid
            counted = await worker.get("--metrics-port", "/metrics")
            assert 'monque_jobs_completed_total{job_name="send-email"} 1.0' in counted
            assert '"status": "alive"' in await web.get("--health-port", "/healthz")

            path = scaled["metadata"]["url"].partition("monque-web.default.svc")[2]
            answer = json.loads(await web.get("--port", path))
            assert answer[scaled["metadata"]["valueLocation"]] == 2  # what is due, and what runs

            code, logged = await worker.ends()
            assert code == 0
            assert " stopped after " in json.loads(logged[-1])["message"]
            assert (await web.ends())[0] == 0

    assert option(image.command, "--health-port") == "8081"
    assert not list(image.root.joinpath("opt").rglob("pip"))  # it cannot install anything
