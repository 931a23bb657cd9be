"""The user name and the password of a URI are told to the server and to nobody else."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import traceback
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from monque import ConfigurationError, ConnectionError, Monque, MonqueError
from monque.cli.session import Database
from monque.cli.work import Settings
from monque.sync import SyncMonque
from support.options import QUICK
from support.servers import Servers
from support.waiting import Events, eventually

USER = "margaret"
PASSWORD = "hunter2/s3cr@t:Ωmega?"
QUOTED = urllib.parse.quote_plus(PASSWORD)
# Whatever part of it is told is told too much.
SECRETS = ("hunter2", "s3cr", "Ωmega", QUOTED[:12], "%CE%A9mega")

APP = """
from monque import Monque
monque = Monque()
monque.worker("work", lambda job: None)
"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Servers]:
    """A server that lets nobody in without a password; the first user is made before anybody else comes."""
    with Servers(replica_set=False, extra=["--auth"]) as servers:
        with MongoClient(servers.uri()) as client:  # from this machine, while there is no user
            client.admin.command("createUser", USER, pwd=PASSWORD, roles=["root"])
        yield servers


@pytest.fixture
def uri(guarded: Servers) -> str:
    return with_password(guarded, QUOTED)


@pytest.fixture
def wrong(guarded: Servers) -> str:
    """The password of somebody who mistyped it: still not to be told."""
    return with_password(guarded, QUOTED + "x")


@pytest.fixture
def nowhere() -> str:
    return f"mongodb://{USER}:{QUOTED}@127.0.0.1:1/shop?serverSelectionTimeoutMS=200"


def with_password(servers: Servers, quoted: str) -> str:
    address = servers.nodes[0].address
    return f"mongodb://{USER}:{quoted}@{address}/shop?authSource=admin&serverSelectionTimeoutMS=3000"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Everything that is logged, by Monque and by the driver, down to the last detail."""
    caplog.set_level(logging.DEBUG)
    for name in ("monque", "pymongo", "asyncio"):
        caplog.set_level(logging.DEBUG, logger=name)
    return caplog


def assert_untold(*places: object) -> None:
    for place in places:
        text = place if isinstance(place, str) else repr(place)
        assert not [secret for secret in SECRETS if secret in text]


def told(error: BaseException) -> str:
    """All that a traceback shows, the causes included."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


async def test_work_on_a_guarded_server_tells_no_password(uri: str, log: pytest.LogCaptureFixture) -> None:
    monque = Monque(uri, options=replace(QUICK, collection="right"))
    events = Events(monque)
    monque.worker("work", lambda job: None)
    monque.worker("bad", lambda job: 1 / 0)
    shown = [repr(monque)]
    async with monque:
        await monque.start()
        job = await monque.enqueue("work", {"a": 1})
        await monque.enqueue("bad")
        await events.wait("job:complete")
        await events.wait("job:fail")
        shown += [repr(monque), repr(monque.options), repr(monque.workers), repr(job)]
        shown += [repr(await monque.diagnose()), repr(monque.client), repr(monque.database)]

    assert_untold(*shown, *map(repr, events.all), log.text)
    assert "job:complete" in events.kinds()


async def test_a_wrong_password_is_an_error_without_it(wrong: str, log: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionError, match="could not open the database") as refused:
        await Monque(wrong).open()

    assert "Authentication failed" in str(refused.value)
    assert_untold(told(refused.value), log.text)


async def test_an_unreachable_host_is_named_without_the_password(
    nowhere: str, log: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConnectionError) as refused:
        await Monque(nowhere).open()

    assert "127.0.0.1:1" in str(refused.value)
    assert_untold(told(refused.value), log.text)


async def test_a_password_changed_while_running_is_told_without_it(
    guarded: Servers, log: pytest.LogCaptureFixture
) -> None:
    """The loops fail, say so in events and in the log, and go on when the server lets them in again."""
    with MongoClient(with_password(guarded, QUOTED)) as admin:
        admin.admin.command("createUser", "guest", pwd=PASSWORD, roles=["readWriteAnyDatabase"])
        uri = with_password(guarded, QUOTED).replace(USER, "guest")
        monque = Monque(uri, options=replace(QUICK, collection="changed"))
        events = Events(monque)
        monque.worker("work", lambda job: None)
        async with monque:
            await monque.start()
            await eventually(lambda: _assert(monque.is_healthy()))
            admin.admin.command("updateUser", "guest", roles=[])
            await events.wait("job:error")
            with pytest.raises(ConnectionError) as refused:
                await monque.enqueue("work")
            admin.admin.command("updateUser", "guest", roles=["readWriteAnyDatabase"])
            await eventually(lambda: _assert(monque.is_healthy()))
            await monque.enqueue("work")
            await events.wait("job:complete")

    assert_untold(told(refused.value), log.text, *map(repr, events.all))
    assert_untold(*(told(event.error) for event in events.of("job:error")))


def _assert(fact: bool) -> None:
    assert fact


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://margaret:hunter2/s3cr@db/shop",
        "mongodb://margaret:27/s3cr@db/shop",
        "mongodb://margaret:27/s3cr@db",
        "mongodb://margaret:27/hunter2/s3cr@db/shop?w=1",
        "mongodb://margaret:27?s3cr=hunter2@db/shop",
        "mongodb://margaret:hunter2?s3cr@db/shop",
        "mongodb://margaret:hunter2@s3cr@db/shop",
        "mongodb://margaret:hunter2:s3cr@db/shop",
        "mongodb://margaret:hunter2%s3cr@db/shop",
        "mongodb://margaret:hunter2@db:s3cr/shop",
        "mongodb://margaret:hunter2@",
        "mongodb://margaret:hunter2@/shop",
        "mongodb://:hunter2@db/shop",
        "mongodb+srv://margaret:hunter2/s3cr@db.example.org/shop",
        "mongo://margaret:hunter2@db/shop",
        "margaret:hunter2@db/shop",
        "mongodb://margaret:hunter2@db/shop?tls=perhaps",
        "mongodb://margaret:hunter2@db/shop?tls=true&tlsCAFile=/no/such/file",
        "mongodb://margaret:hunter2@db/sh op$",
    ],
)
def test_a_malformed_uri_is_refused_without_its_password(uri: str) -> None:
    for make in (Monque, SyncMonque):
        with pytest.raises(ConfigurationError, match="the MongoDB URI cannot be used") as refused:
            make(uri)
        # Python shows the line of the test in a traceback, but no values.
        shown = told(refused.value).replace(uri, "")
        assert_untold(shown)


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://localhost/shop?appName=me@here",
        "mongodb://margaret:hunter2@localhost/?appName=me@here",
        "mongodb://margaret:hunter%2F2@localhost?appName=me@here",
        "mongodb://%2Ftmp%2Fmongo.sock/shop",
    ],
)
def test_an_address_with_nothing_unescaped_in_its_password_is_taken(uri: str) -> None:
    assert_untold(Monque(uri))


def test_what_the_command_line_keeps_does_not_show_it() -> None:
    uri = f"mongodb://{USER}:{QUOTED}@db/shop"

    assert_untold(Database(uri, "jobs"), Settings(target="a:b", uri=uri))


class TestTheCommand:
    """As processes of their own; what they print on either stream."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "shop.py").write_text(APP)
        return tmp_path

    @staticmethod
    async def run(folder: Path, *words: str, **env: str) -> tuple[int, str]:
        process = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "monque", *words],
            cwd=folder,
            env={**os.environ, "PYTHONWARNINGS": "error", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return process.returncode, process.stdout

    @pytest.mark.parametrize("given", ["--uri", "MONQUE_URI"])
    async def test_commands_that_reach_the_server(self, folder: Path, uri: str, given: str) -> None:
        flag = ["--uri", uri] if given == "--uri" else []
        env = {} if flag else {"MONQUE_URI": uri}
        outputs = []
        for words in (
            ["enqueue", "work", "1", "--json"],
            ["doctor", "--json"],
            ["doctor"],
            ["jobs", "list", "--json"],
            ["worker", "shop:monque", "--until-idle", "--log-level", "debug", "--log-format", "json"],
            ["worker", "shop:monque", "--until-idle", "--log-level", "debug", "--processes", "2"],
            ["stats"],
        ):
            code, output = await self.run(folder, *words, *flag, **env)
            assert code == 0 or "doctor" in words, output
            outputs.append(output)

        assert_untold(*outputs)
        assert "MongoDB" in outputs[1]

    @pytest.mark.parametrize("given", ["--uri", "MONQUE_URI"])
    @pytest.mark.parametrize("where", ["wrong", "nowhere", "malformed"])
    async def test_commands_that_do_not(
        self, folder: Path, request: pytest.FixtureRequest, where: str, given: str
    ) -> None:
        bad = (
            "mongodb://margaret:hunter2/s3cr@db/shop"
            if where == "malformed"
            else request.getfixturevalue(where)
        )
        flag = ["--uri", bad] if given == "--uri" else []
        env = {} if flag else {"MONQUE_URI": bad}
        for words in (
            ["doctor", "--json"],
            ["enqueue", "work", "1"],
            ["worker", "shop:monque", "--until-idle", "--log-level", "debug"],
        ):
            code, output = await self.run(folder, *words, *flag, **env)
            assert code != 0
            assert_untold(output)
            if words[0] == "doctor":
                # Beside it, Python may warn of a socket that the driver has left behind.
                [finding] = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
                assert finding["level"] == "error"


def test_every_error_of_ours_is_without_it(uri: str) -> None:
    """Also those about wrong use, which show what they were given."""
    with SyncMonque(uri, options=replace(QUICK, collection="errors")) as monque:
        wrongs: list[Any] = [monque, monque.options]
        for wrong in wrongs:
            for call in (monque.enqueue, monque.get_jobs, monque.delete_jobs, monque.list_jobs):
                with pytest.raises((MonqueError, TypeError)) as refused:
                    call(wrong)
                assert_untold(told(refused.value))
