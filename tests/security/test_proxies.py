"""A real nginx in front of `monque web`: without any setting, and as the guide to deploying has it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database
from support.jobs import document
from support.nginx import needs_nginx, nginx
from support.ports import free_port
from support.programs.child import uri_of
from support.serving import is_up, program
from support.waiting import eventually
from support.web import KEY, basic

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "dashboard-deploying.md"
ME = "/api/ops/v1/me"
DELETE_ALL = "/api/v1/jobs/actions/delete"
PASSWORD = "of this test"

pytestmark = needs_nginx


@pytest.fixture
def uri(server: EmbeddedMongo, database: Database) -> str:
    return uri_of(server, database)


@asynccontextmanager
async def web(uri: str, folder: Path, *options: str, **environment: str) -> AsyncIterator[int]:
    """Run `monque web`; its port."""
    port = free_port()
    command = ("monque", "web", "--port", str(port), *options)
    async with program(*command, folder=folder, MONQUE_URI=uri, **environment) as child:
        await is_up(child, port)
        yield port


async def test_a_bare_proxy_lets_nobody_in_without_the_key(
    uri: str, collection: Collection, tmp_path: Path
) -> None:
    """It sends `Host: 127.0.0.1` and no header of its own: only the key tells its clients from the user."""
    job = document(name="work")
    await collection.insert_one(job)
    browser = {"sec-fetch-site": "same-origin", "origin": "http://shop.example"}
    async with (
        web(uri, tmp_path) as port,
        nginx(f"location / {{ proxy_pass http://127.0.0.1:{port}; }}", tmp_path) as address,
        httpx2.AsyncClient(base_url=address) as client,
    ):
        for headers in ({}, browser, {"authorization": "Bearer wrong"}):
            assert (await client.get(ME, headers=headers)).status_code == 403, headers
            assert (await client.post(DELETE_ALL, json={}, headers=headers)).status_code == 403, headers
        page = await client.get("/", headers={"accept": "text/html"})
        assert (page.status_code, page.headers["content-type"]) == (403, "text/html; charset=utf-8")
        assert KEY not in page.text

        # Whoever has the key may use it here. A page of another host may not write with it.
        right = {"authorization": f"Bearer {KEY}"}
        assert (await client.get(ME, headers=right)).json()["actor"]["name"] == "local"
        assert (await client.post(DELETE_ALL, json={}, headers={**browser, **right})).status_code == 403
        assert await collection.find().to_list() == [job]


def documented(port: int, *, takes_prefix_away: bool) -> str:
    """The configuration of the guide, for a server on this port."""
    (text,) = re.findall(r"^```text\n(location .*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    upstream = "http://127.0.0.1:8787"
    assert f"proxy_pass {upstream};" in text
    return text.replace(f"{upstream};", f"http://127.0.0.1:{port}{'/' if takes_prefix_away else ''};")


@pytest.mark.parametrize("takes_prefix_away", [False, True], ids=["prefix left", "prefix taken away"])
async def test_behind_the_documented_proxy_no_client_chooses_its_address(
    uri: str, database: Database, collection: Collection, tmp_path: Path, takes_prefix_away: bool
) -> None:
    await collection.insert_one(document(name="work", status="failed"))
    options = ("--user", "ada", "--root-path", "/monque", "--proxy-headers")
    async with (
        web(uri, tmp_path, *options, MONQUE_WEB_PASSWORD=PASSWORD) as port,
        nginx(documented(port, takes_prefix_away=takes_prefix_away), tmp_path) as address,
        httpx2.AsyncClient(
            base_url=f"{address}/monque", transport=httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
        ) as client,
    ):
        right = basic("ada", PASSWORD)
        assert '<base href="/monque/"' in (await client.get("/", headers=right)).text
        posted = await client.post(
            DELETE_ALL, json={"name": "work"}, headers={**right, "x-forwarded-for": "203.0.113.9"}
        )
        assert posted.json() == {"count": 1, "errors": []}

        async def check_trail() -> None:
            entries = await database["monque_jobs_audit"].find().to_list()
            assert [entry["address"] for entry in entries] == ["127.0.0.2"]

        await eventually(check_trail)

        for number in range(10):
            wrong = {**basic("ada", "guess"), "x-forwarded-for": f"203.0.113.{number}"}
            assert (await client.get(ME, headers=wrong)).status_code == 401
        locked = await client.get(ME, headers={**right, "x-forwarded-for": "203.0.113.99"})
        assert locked.status_code == 429
