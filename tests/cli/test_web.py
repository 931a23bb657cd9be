"""`monque web`: who is let in, what it changes, and how it ends."""

from __future__ import annotations

import base64
import json
import logging
import re
import signal
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest
from click.testing import Result

from cli.conftest import Documents, Program
from monque.cli.web import Serving, _tell
from monque.web.access.key import Key
from support.jobs import document
from support.web import KEY

Call = Callable[..., Result]
Start = Callable[..., Program]
PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """What is called in this process sets up its logs; the next test must not have them."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("uvicorn", "pymongo"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def address_of(program: Program) -> str:
    """Where it serves."""
    return program.wait_for(r"Monque at (http://\S+/)(?:\?key=\S+)? \(Ctrl-C")[0]


def ask(address: str, *, user: str | None = None, token: str | None = KEY, **given: Any) -> tuple[int, Any]:
    """The status and the JSON of an answer; by default to a request with the key."""
    headers = {}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    elif token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with urlopen(Request(address, headers=headers, **given), timeout=30) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_an_address_that_others_can_reach_needs_a_user_or_a_token(call: Call) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "shop.example.org"):  # noqa: S104 - it is refused
        result = call("web", "--host", host)

        assert result.exit_code == 2
        assert f"others can reach {host}" in result.stderr
        assert "--user NAME" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--password-file", "x"), "belongs to --user"),
        (("--user", "ada", "--password-file", "missing"), "cannot be read from missing"),
        (("--certfile", "x"), "belong together"),
        (("--certfile", "x", "--keyfile", "y"), "there is no file x"),
        (("--port", "0", "--certfile", __file__, "--keyfile", __file__), "no certificate and its key"),
        (("--root-path", "/a b"), "root_path must be"),
        (("no.such:thing",), "there is no module 'no'"),
        (("--password", "x"), "No such option"),
    ],
)
def test_wrong_input_is_told_in_a_sentence(call: Call, arguments: tuple[str, ...], reason: str) -> None:
    result = call("web", "--port", "0", *arguments)

    assert result.exit_code == 2, result.output
    assert reason in " ".join(result.stderr.split())


def test_an_empty_password_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONQUE_WEB_PASSWORD", "")
    result = call("web", "--user", "ada")

    assert result.exit_code == 2
    assert "the password of ada is empty" in result.stderr


def test_a_port_that_is_taken_is_told_in_a_sentence(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = call("web", "--port", str(taken.getsockname()[1]))

    assert result.exit_code == 1
    assert "choose another --host or --port" in result.stderr


def test_it_opens_the_browser_if_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        _tell(Serving(host="127.0.0.1", port=0), listener, None)
        assert opened == []
        below = Serving(host="127.0.0.1", port=0, opens_browser=True, app={"root_path": "/ops"})
        _tell(below, listener, None)
        _tell(below, listener, Key("of this test", "here"))

    assert opened == [f"{address}/ops/", f"{address}/ops/?key=of%20this%20test"]
    told = capsys.readouterr().err
    assert all(f"Monque at {each} (Ctrl-C" in told for each in (f"{address}/", *opened))


def test_the_printed_link_lets_a_browser_in_and_no_log_shows_the_key(start: Start, tmp_path: Path) -> None:
    """Also where there is no place for a file: the key is of this process then."""
    for home in (tmp_path, tmp_path / "nowhere"):
        (tmp_path / "nowhere").write_text("no folder")
        own = {"MONQUE_WEB_KEY": "", "XDG_DATA_HOME": "", "HOME": str(home)}
        program = start("web", "--port", "0", "--log-level", "debug", **own)
        (link,) = program.wait_for(r"Monque at (\S+) \(Ctrl-C")
        address, _, key = link.partition("?key=")
        me = f"{address}api/ops/v1/me"
        browser = build_opener(HTTPCookieProcessor())
        with browser.open(Request(link, headers={"Accept": "text/html"}), timeout=30) as page:  # noqa: S310
            assert (page.status, page.url) == (200, address)
        with browser.open(me, timeout=30) as answer:
            assert json.load(answer)["actor"]["name"] == "local"
        assert (ask(me, token=key)[0], ask(me, token=None)[0], ask(me, token="wrong")[0]) == (200, 403, 403)
        program.send(signal.SIGTERM)
        assert program.ends() == 0
        assert program.text.count(key) == 1
        files = [path.read_text().strip() for path in home.rglob("web/key")]
        assert files == ([key] if home.is_dir() else [])
        assert ("the key of this process is used" in program.text) is not home.is_dir()


def test_without_a_target_it_only_looks(start: Start, jobs: Documents) -> None:
    """No index is made and no job of a dead owner is recovered; the API answers all the same."""
    long_ago = datetime.now(UTC) - timedelta(days=1)
    stale = document(
        name="work", status="processing", claimedBy="gone", lockedAt=long_ago, lastHeartbeat=long_ago
    )
    jobs.insert_one(stale)
    before = jobs.find_one()

    program = start("web", "--port", "0")
    address = address_of(program)
    status, listed = ask(f"{address}api/v1/jobs")
    document_status, _ = ask(f"{address}openapi.json")
    program.send(signal.SIGINT)

    assert program.ends() == 0
    assert (status, [job["name"] for job in listed["jobs"]]) == (200, ["work"])
    assert document_status == 200
    assert jobs.find_one() == before
    assert list(jobs.index_information()) == ["_id_"]
    assert jobs.database.list_collection_names() == ["monque_jobs"]


@pytest.mark.parametrize("target", ["shop:monque", "shop:blocking", "web:app"])
def test_with_a_target_it_has_its_options_and_runs_no_jobs(
    start: Start, jobs: Documents, target: str
) -> None:
    jobs.insert_one(document(name="work", data=1.5))
    options = ("--read-only", "--no-ui", "--title", "Shop", "--badge", "production")
    program = start("web", target, "--port", "0", *options)
    address = address_of(program)

    status, listed = ask(f"{address}api/v1/jobs")
    assert (status, listed["jobs"][0]["status"]) == (200, "pending")
    allowed = ask(f"{address}api/v1/capabilities")[1]["actions"]
    assert [action for action, may in allowed.items() if may] == ["read"]
    assert ask(address)[0] == 404
    me = ask(f"{address}api/ops/v1/me")[1]
    assert (me["title"], me["badge"], me["readOnly"]) == ("Shop", "production", True)
    assert "monque_active" in jobs.index_information()  # as its options have it
    program.send(signal.SIGTERM)
    assert program.ends() == 0


def test_a_password_or_a_token_lets_in_and_stands_in_no_log(start: Start, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    program = start(
        "web", "--port", "0", "--user", "ada", "--password-file", str(tmp_path / "password"),
        "--log-level", "debug", MONQUE_WEB_TOKEN="token of a robot",
    )  # fmt: skip
    address = address_of(program)
    health = f"{address}api/v1/health"

    assert ask(health, token=None)[0] == 401
    assert ask(health, user="ada:wrong")[0] == 401
    assert ask(health, user=f"ada:{PASSWORD}")[0] == 200
    assert ask(health, token="token of a robot")[0] == 200
    program.send(signal.SIGTERM)
    assert program.ends() == 0
    assert PASSWORD not in program.text
    assert "token of a robot" not in program.text
    assert base64.b64encode(f"ada:{PASSWORD}".encode()).decode() not in program.text


def test_a_password_can_be_typed_and_is_not_shown(start: Start) -> None:
    program = start("web", "--port", "0", "--user", "ada", terminal=True)
    program.wait_for("Password of ada: ")
    program.types(f"{PASSWORD}\r")
    address = address_of(program)

    assert ask(f"{address}api/v1/health", user=f"ada:{PASSWORD}")[0] == 200
    assert PASSWORD not in program.text
    program.send(signal.SIGINT)
    assert program.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_though_streams_are_open(start: Start, number: signal.Signals) -> None:
    """Twenty streams, within two seconds, and without a traceback; of these, one does not read."""
    program = start("web", "--port", "0")
    with_key = {"Authorization": f"Bearer {KEY}"}
    request = Request(f"{address_of(program)}api/ops/v1/stream", headers=with_key)  # noqa: S310
    with ExitStack() as stack:
        streams = [
            stack.enter_context(urlopen(request, timeout=30))  # noqa: S310
            for _ in range(20)
        ]
        for stream in streams:
            while b"snapshot" not in stream.readline():
                pass
        began = time.monotonic()
        program.send(number)
        readers = [threading.Thread(target=stream.read) for stream in streams[1:]]
        for reader in readers:
            reader.start()
        code = program.ends()
        took = time.monotonic() - began
        for reader in readers:
            reader.join()

    assert code == 0
    assert took < 3, program.text
    assert "Traceback" not in program.text
    assert not re.search("ERROR|WARNING", program.text)
