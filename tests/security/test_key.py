"""A dashboard without `auth` lets in whoever has the key. The table is made from the routes."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from monque import Monque
from monque.embedded import EmbeddedMongo
from monque.fastapi import include_dashboard
from monque.web import Dashboard, LoopbackOnly, dashboard
from monque.web.route import EVENTS
from support.aliases import Collection, Database
from support.asgi_stream import asgi_stream
from support.examples import routes, send
from support.jobs import document
from support.places import short_folder
from support.ports import free_port
from support.programs.child import Child, uri_of
from support.serving import is_up, program
from support.traffic import Traffic
from support.waiting import eventually
from support.web import KEY, Client, client_of, key_cookie

APPS = Path(__file__).parents[1] / "web" / "apps"
HEALTH = "/api/v1/health"
ME = "/api/ops/v1/me"
NAVIGATION = {"accept": "text/html", "sec-fetch-mode": "navigate", "sec-fetch-site": "none"}
(NAME,) = key_cookie()
BY_HEADER = {"authorization": f"Bearer {KEY}"}

NO_KEY: dict[str, dict[str, str]] = {
    "no key": {},
    "wrong cookie": {"cookie": f"{NAME}=wrong"},
    "empty cookie": {"cookie": f"{NAME}="},
    "cookie with the key itself": {"cookie": f"{NAME}={KEY}"},
    "cookie of another port": {"cookie": f"monque-81={key_cookie()[NAME]}"},
    "wrong header": {"authorization": "Bearer wrong"},
    "header with the cookie": {"authorization": f"Bearer {key_cookie()[NAME]}"},
    "key as a password": {"authorization": f"Basic {KEY}"},
    "wrong header, right cookie": {"authorization": "Bearer wrong", "cookie": f"{NAME}={key_cookie()[NAME]}"},
}
WITH_KEY: dict[str, dict[str, str]] = {
    "cookie": {"cookie": f"{NAME}={key_cookie()[NAME]}"},
    "header": BY_HEADER,
    "header in small letters": {"authorization": f"bearer {KEY}"},
    "cookie of an earlier key, right header": {"cookie": f"{NAME}=wrong", **BY_HEADER},
}


@pytest.fixture
async def board(watched: Monque) -> AsyncIterator[Dashboard]:
    """A dashboard without `auth` whose commands are recorded."""
    async with dashboard(watched, allow_enqueue=True) as made:
        yield made


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that all users of the machine can enter."""
    with tempfile.TemporaryDirectory(dir=short_folder()) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
async def job(collection: Collection) -> dict[str, Any]:
    made = document(name="work", status="failed", failReason="ValueError")
    await collection.insert_one(made)
    return made


@pytest.fixture
async def stranger(monque: Monque) -> AsyncIterator[Client]:
    """A client on this machine that has no key."""
    async with dashboard(monque) as board, client_of(board, cookies={}) as client:
        yield client


@pytest.mark.parametrize("headers", NO_KEY.values(), ids=NO_KEY)
async def test_no_route_answers_without_the_key(
    board: Dashboard, collection: Collection, job: dict[str, Any], traffic: Traffic, headers: dict[str, str]
) -> None:
    traffic.clear()
    for number, route in enumerate(routes(streaming=True)):
        # From one address, ten wrong ones a minute are answered.
        async with client_of(board, client=f"127.0.1.{number}", cookies={}) as client:
            answer = await send(client, route, str(job["_id"]), headers=headers)
        assert answer.status_code == 403, f"{route.operation}: {answer.text}"
        assert "auth=BasicAuth" in answer.text
        assert "ValueError" not in answer.text
    assert traffic.sent.total() == 0
    assert await collection.find().to_list() == [job]


@pytest.mark.parametrize("headers", WITH_KEY.values(), ids=WITH_KEY)
async def test_every_route_answers_with_the_key(
    board: Dashboard, job: dict[str, Any], headers: dict[str, str]
) -> None:
    for route in routes(streaming=True):
        if route.media_type == EVENTS:
            async with asgi_stream(board, route.path, **{"cookie": "", **headers}) as stream:
                assert (await stream.until("snapshot")).data["names"] is not None, route.operation
            continue
        async with client_of(board, cookies={}) as client:
            answer = await send(client, route, str(job["_id"]), headers=headers)
        assert answer.status_code not in (401, 403), f"{route.operation}: {answer.text}"


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/jobs?name=a", "/assets/index.js", "/favicon.svg", "/nowhere"]
)
async def test_no_page_and_no_file_is_sent_without_the_key(stranger: Client, path: str) -> None:
    answer = await stranger.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert "set-cookie" not in answer.headers

    page = await stranger.get(path, headers=NAVIGATION)
    assert (page.status_code, page.headers["content-type"]) == (403, "text/html; charset=utf-8")
    for part in ("the link that was printed", "?key=…", "the file that its log names", "auth=BasicAuth"):
        assert part in page.text
    assert KEY not in page.text


@pytest.mark.parametrize(
    ("prefix", "path", "address"),
    [
        ("", f"/?key={KEY}", "/"),
        ("", f"/jobs?name=a%26b&key={KEY}&status=failed", "/jobs?name=a%26b&status=failed"),
        ("", f"/jobs?key={KEY}&key=wrong", "/jobs"),
        ("", f"/queues/%3Fa%20b?key={KEY}", "/queues/%3Fa%20b"),
        ("/ops/monque", f"/ops/monque/?key={KEY}", "/ops/monque/"),
        ("/ops/monque", f"/ops/monque/failures?key={KEY}", "/ops/monque/failures"),
        ("/ops/monque", f"/ops/monque?key={KEY}", "/ops/monque"),
    ],
)
@pytest.mark.parametrize("referer", [None, "https://chat.example/messages"])
async def test_a_link_with_the_key_leaves_a_cookie_and_leads_to_the_address_without_it(
    monque: Monque, prefix: str, path: str, address: str, referer: str | None
) -> None:
    from_elsewhere = {"referer": referer, "sec-fetch-site": "cross-site"} if referer else {}
    here = "http://localhost:8787"
    async with (
        dashboard(monque, root_path=prefix) as board,
        client_of(board, host="localhost:8787", cookies={}) as client,
    ):
        answer = await client.get(path, headers={**NAVIGATION, **from_elsewhere})
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("./")
        assert urljoin(here + path, answer.headers["location"]) == here + address
        name, _, rest = answer.headers["set-cookie"].partition("=")
        value, *attributes = rest.split("; ")
        assert (name, value) == ("monque-8787", key_cookie()[NAME])
        assert sorted(attributes) == ["HttpOnly", f"Path={prefix or '/'}", "SameSite=lax"]
        assert answer.headers["cache-control"] == "no-store"

        assert (await client.get(prefix + ME)).json()["actor"]["name"] == "local"
        page = await client.get(address, headers=NAVIGATION, follow_redirects=True)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


async def test_over_tls_the_cookie_is_sent_over_tls_alone(monque: Monque) -> None:
    async with dashboard(monque) as board, client_of(board, cookies={}) as client:
        answer = await client.get(f"https://localhost/?key={KEY}")
    assert answer.headers["set-cookie"].startswith("monque-443=")
    assert answer.headers["set-cookie"].endswith("; Secure")


async def test_a_link_with_a_wrong_key_leaves_no_cookie(stranger: Client) -> None:
    for wrong in ("wrong", "", KEY[:-1], f"{KEY}0", "%00", "%ff"):
        answer = await stranger.get(f"/?key={wrong}", headers=NAVIGATION)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


async def test_the_api_takes_no_key_in_its_address(stranger: Client) -> None:
    for path in (HEALTH, ME, "/openapi.json", "/api"):
        answer = await stranger.get(f"{path}?key={KEY}")
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


async def test_after_ten_wrong_keys_the_right_one_must_wait_and_the_cookie_need_not(monque: Monque) -> None:
    """A page of another site can have a browser open wrong links: whoever is in stays in."""
    async with dashboard(monque) as board, client_of(board, cookies={}) as client:
        for _ in range(5):
            assert (await client.get("/?key=wrong", headers=NAVIGATION)).status_code == 403
            assert (await client.get(ME, headers={"authorization": "Bearer wrong"})).status_code == 403
        for answer in (
            await client.get(f"/?key={KEY}", headers=NAVIGATION),
            await client.get(ME, headers=BY_HEADER),
        ):
            assert answer.status_code == 429
            assert 0 < int(answer.headers["retry-after"]) <= 60
        assert (await client.get(ME, headers=WITH_KEY["cookie"])).status_code == 200
        assert (await client.get(ME)).status_code == 403  # who sends no secret guesses none

        for _ in range(10):
            assert (await client.get(ME, headers={"cookie": f"{NAME}=guess"})).status_code == 403
        assert (await client.get(ME, headers=WITH_KEY["cookie"])).status_code == 429


async def test_a_browser_forgets_the_cookie_of_an_earlier_key(monque: Monque) -> None:
    async with dashboard(monque) as board, client_of(board, cookies={}) as client:
        client.cookies.set(NAME, "earlier", domain="localhost.local", path="/")
        assert (await client.get(ME)).status_code == 403
        assert not client.cookies
        assert (await client.get(f"/?key={KEY}", headers=NAVIGATION)).status_code == 303


async def test_a_wrong_link_or_token_does_not_take_the_cookie_away(monque: Monque) -> None:
    """Or a page of another site could log a user out, by a link with a wrong key."""
    from_elsewhere = {**NAVIGATION, "sec-fetch-site": "cross-site"}
    async with dashboard(monque) as board, client_of(board) as client:
        for answer in (
            await client.get("/?key=wrong", headers=from_elsewhere),
            await client.get(ME, headers={"authorization": "Bearer wrong"}),
        ):
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://shop.example", "sec-fetch-site": "same-origin"}, 403),
        ({"origin": "http://localhost.evil.example", "sec-fetch-site": "same-origin"}, 403),
        ({"origin": "null", "sec-fetch-site": "same-origin"}, 403),
        ({"origin": "http://localhost:9000", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://localhost:9000"}, 403),
    ],
)
@pytest.mark.parametrize("auth", [None, LoopbackOnly()], ids=["key", "LoopbackOnly"])
async def test_only_pages_of_this_machine_may_write(
    monque: Monque, auth: LoopbackOnly | None, headers: dict[str, str], status: int
) -> None:
    async with dashboard(monque, auth=auth) as board, client_of(board) as client:
        answer = await client.post("/api/v1/jobs/actions/cancel", json={}, headers=headers)
    assert answer.status_code == status


PROXY_HEADERS = [
    *("forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"),
    *("cf-connecting-ip", "true-client-ip", "x-client-ip", "fastly-client-ip", "x-envoy-external-address"),
]


@pytest.mark.parametrize("header", PROXY_HEADERS)
async def test_with_the_key_a_proxy_that_says_so_is_refused_all_the_same(monque: Monque, header: str) -> None:
    async with dashboard(monque) as board, client_of(board) as client:
        assert (await client.get(ME, headers=BY_HEADER)).status_code == 200
        assert (await client.get(ME, headers={**BY_HEADER, header: "127.0.0.1"})).status_code == 403
        elsewhere = await client.get(f"/?key={KEY}", headers={**NAVIGATION, header: "127.0.0.1"})
        assert elsewhere.status_code == 403


async def test_from_another_address_or_host_the_key_lets_nobody_in(monque: Monque) -> None:
    async with dashboard(monque) as board:
        for given in ({"client": "192.0.2.7"}, {"host": "shop.example"}, {"client": None}):
            async with client_of(board, **given) as client:
                assert (await client.get(ME, headers=BY_HEADER)).status_code == 403
                assert (await client.get(f"/?key={KEY}", headers=NAVIGATION)).status_code == 403


async def test_loopback_only_and_logins_of_a_host_need_no_key(monque: Monque) -> None:
    guarded, named = FastAPI(), FastAPI()
    include_dashboard(guarded, monque=monque, dependencies=[Depends(lambda: None)])
    include_dashboard(named, monque=monque, actor=lambda: "ada", auth=None)
    alone = Starlette(routes=[Mount("/monque", dashboard(monque, auth=LoopbackOnly()))])
    for app, name in ((guarded, "somebody"), (named, "ada"), (alone, "local")):
        async with client_of(app, cookies={}) as client:
            assert (await client.get(f"/monque{ME}")).json()["actor"]["name"] == name
            assert "set-cookie" not in (await client.get(f"/monque/?key={KEY}")).headers


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without a key."""
    monkeypatch.delenv("MONQUE_WEB_KEY")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_mounted_dashboard_logs_where_its_key_is_and_not_the_key(
    monque: Monque, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "monque")
    caplog.set_level(logging.WARNING, "httpx2")  # which logs the link that it opens
    async with dashboard(monque) as board, client_of(board, cookies={}) as client:
        assert files_in(home) == []  # not before somebody asks
        assert (await client.get(ME)).status_code == 403
        (file,) = files_in(home)
        key = file.read_text().strip()
        assert (await client.get(f"/?key={key}", headers=NAVIGATION)).status_code == 303
        assert (await client.get(ME)).status_code == 200
    assert caplog.text.count(f"whoever has the key in {file}") == 1
    assert key not in caplog.text


async def test_a_mounted_dashboard_without_a_usable_key_says_what_to_set(
    monque: Monque, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / ".local").write_text("no folder")
    (home / "Library").write_text("no folder")
    async with dashboard(monque) as board, client_of(board, cookies={}) as client:
        for headers in ({}, {"authorization": "Bearer "}, {"cookie": f"{NAME}="}, BY_HEADER):
            answer = await client.get(ME, headers=headers)
            assert answer.status_code == 403
            assert "Set MONQUE_WEB_KEY" in answer.json()["detail"]
            assert "auth=" in answer.json()["detail"]
            assert str(home) not in answer.text
        page = await client.get("/?key=", headers=NAVIGATION)
        assert (page.status_code, "Set MONQUE_WEB_KEY" in page.text) == (403, True)
    assert str(home) in caplog.text


async def test_the_access_log_of_the_server_of_an_application_does_not_show_the_key(uri: str) -> None:
    port = free_port()
    command = ("uvicorn", "live_app:app", "--port", str(port), "--access-log")
    async with program(*command, folder=APPS, MONQUE_URI=uri) as child:
        await is_up(child, port)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/ops/monque") as client:
            answer = await client.get(f"/jobs?key={KEY}&name=work", headers=NAVIGATION)
            assert answer.status_code == 303
        child.send(signal.SIGTERM)
        await child.ends()
        await child.finished()
    logged = "\n".join(child.said) + child.complaints
    assert "GET /ops/monque/jobs?name=work HTTP" in logged
    assert KEY not in logged


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("curl") is None, reason="only root can run curl as another user"
)
async def test_another_user_of_the_machine_is_not_let_in_and_cannot_read_the_key(
    uri: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MONQUE_WEB_KEY")
    port = free_port()
    asking = ("curl", "-s", "-o", os.devnull, "-w", "%{http_code}", f"http://127.0.0.1:{port}{ME}")
    command = ("monque", "web", "--port", str(port), "--allow-enqueue")
    async with program(*command, folder=place, MONQUE_URI=uri, HOME=str(place), XDG_DATA_HOME="") as child:
        await is_up(child, port)
        await eventually(lambda: printed(child, "Monque at"), within=30)
        (file,) = files_in(place)
        right = ("-H", f"authorization: Bearer {file.read_text().strip()}")
        assert run(*asking, *right).stdout == "200"
        assert run(*asking, *right, user=NOBODY).stdout == "200"
        assert run(*asking, user=NOBODY).stdout == "403"
        assert run("ls", str(place), user=NOBODY).returncode == 0
        assert "Permission denied" in run("cat", str(file), user=NOBODY).stderr


NOBODY = 65534


def printed(child: Child, text: str) -> None:
    assert text in child.complaints


def run(*command: str, user: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, user=user, group=user, extra_groups=[]
    )
