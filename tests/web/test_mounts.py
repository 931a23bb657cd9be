"""A dashboard inside of other applications, below one prefix or several, and behind proxies."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urljoin

import httpx2
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from monque import ConfigurationError, Monque
from monque.fastapi import include_dashboard, setup_monque
from monque.fastapi.dashboard import DashboardOptions
from monque.web import Actor, BasicAuth, Dashboard, Limits, dashboard
from support.aliases import Database, Make
from support.asgi_stream import asgi_stream
from support.options import QUICK
from support.web import Client, Connect, basic

LIVE = Limits(tick=timedelta(milliseconds=50))
STREAM = "/api/ops/v1/stream"


async def check(client: Client, app: Any, prefix: str, *, shown: str | None = None) -> None:
    """The API, the document, the page and the stream answer below *prefix*; links begin with *shown*."""
    shown = prefix if shown is None else shown
    assert (await client.get(f"{prefix}/api/v1/jobs?limit=1")).json()["jobs"] == []
    assert (await client.get(f"{prefix}/openapi.json")).json()["servers"] == [{"url": shown or "/"}]
    assert f'<base href="{shown}/" />' in (await client.get(f"{prefix}/")).text
    if prefix:
        answer = await client.get(prefix)
        assert answer.status_code == 307
        assert (
            urljoin(f"http://localhost{prefix}", answer.headers["location"]) == f"http://localhost{prefix}/"
        )
    async with asgi_stream(app, f"{prefix}{STREAM}") as stream:
        assert (await stream.until("snapshot")).data["names"] == []


@pytest.fixture
async def board(monque: Monque) -> AsyncIterator[Dashboard]:
    async with dashboard(monque, limits=LIVE) as made:
        yield made


async def test_alone(board: Dashboard, connect: Connect) -> None:
    await check(connect(board), board, "")


async def test_in_starlette(board: Dashboard, connect: Connect) -> None:
    app = Starlette(routes=[Mount("/monque", board)])

    await check(connect(app), app, "/monque")


async def test_two_mounts_deep(board: Dashboard, connect: Connect) -> None:
    app = FastAPI()
    inner = FastAPI()
    inner.mount("/monque", board)
    app.mount("/ops", inner)

    await check(connect(app), app, "/ops/monque")


async def test_in_fastapi(board: Dashboard, connect: Connect) -> None:
    app = FastAPI()
    app.mount("/monque", board)

    await check(connect(app), app, "/monque")


@pytest.mark.filterwarnings("ignore:The `root_path` parameter is deprecated")
@pytest.mark.parametrize("path", ["/monque", "/proxy/monque"], ids=["stripped", "kept"])
@pytest.mark.parametrize("how", ["mounted", "included"])
async def test_in_fastapi_behind_a_proxy_of_which_it_knows(
    monque: Monque, connect: Connect, how: str, path: str
) -> None:
    """`FastAPI(root_path=)` sets the prefix in the scope, whether the path has it or not."""
    app = FastAPI(root_path="/proxy")
    async with dashboard(monque) as board:
        if how == "mounted":
            app.mount("/monque", board)
        else:
            include_dashboard(app, monque=monque)
        client = connect(app)
        assert (await client.get(f"{path}/api/v1/jobs")).json()["jobs"] == []
        assert (await client.get(f"{path}/openapi.json")).json()["servers"] == [{"url": "/proxy/monque"}]


async def test_in_litestar_which_takes_the_prefix_away(monque: Monque, connect: Connect) -> None:
    async with dashboard(monque, limits=LIVE, root_path="/monque") as board:

        @asgi("/monque", is_mount=True, copy_scope=True)
        async def mounted(scope: Any, receive: Any, send: Any) -> None:
            await board(scope, receive, send)

        app = Litestar([mounted])
        client = connect(app)
        assert (await client.get("/monque/api/v1/jobs")).json()["jobs"] == []
        assert (await client.get("/monque/openapi.json")).json()["servers"] == [{"url": "/monque"}]
        async with asgi_stream(app, f"/monque{STREAM}") as stream:
            assert (await stream.until("snapshot")).data["names"] == []


def behind_proxy(app: Any, prefix: str, *, strips: bool) -> Any:
    """As if a proxy at *prefix* passed requests on, with the prefix or without it."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith(prefix)
        path = scope["path"][len(prefix) :] if strips else scope["path"]
        forwarded = [(b"x-forwarded-for", b"192.0.2.7"), (b"x-forwarded-prefix", b"/wrong")]
        headers = [*scope["headers"], *forwarded]
        await app({**scope, "path": path, "raw_path": path.encode(), "headers": headers}, receive, send)

    return proxy


@pytest.mark.parametrize("strips", [True, False], ids=["stripped", "kept"])
async def test_behind_a_proxy_with_a_prefix(monque: Monque, connect: Connect, strips: bool) -> None:
    auth = BasicAuth({"ada": "of this test"})
    async with dashboard(monque, limits=LIVE, auth=auth, root_path="/ops/monque") as board:
        app = behind_proxy(board, "/ops/monque", strips=strips)
        client = connect(app, headers=basic("ada", "of this test"))
        assert (await client.get("/ops/monque/api/v1/health")).status_code == 200
        assert (await client.get("/ops/monque/openapi.json")).json()["servers"] == [{"url": "/ops/monque"}]
        async with asgi_stream(app, f"/ops/monque{STREAM}", **basic("ada", "of this test")) as stream:
            assert (await stream.until("snapshot")).data["names"] == []


async def test_behind_a_proxy_without_a_prefix_but_without_auth_nobody_is_let_in(
    board: Dashboard, connect: Connect
) -> None:
    """The proxy is on this machine, its users need not be."""
    answer = await connect(behind_proxy(board, "", strips=True)).get("/api/v1/health")

    assert answer.status_code == 403
    assert "auth=" in answer.text


async def test_two_monques_in_one_process(make_monque: Make, connect: Connect) -> None:
    shop, bank = [
        await make_monque(options=replace(QUICK, collection=name)).open()
        for name in ("monque_jobs", "bank_jobs")
    ]
    await shop.enqueue("ship", {})
    await bank.enqueue("pay", {})
    async with dashboard(shop, limits=LIVE) as first, dashboard(bank, limits=LIVE) as second:
        app = Starlette(routes=[Mount("/shop", first), Mount("/bank", second)])
        client = connect(app)
        for prefix, name in (("/shop", "ship"), ("/bank", "pay")):
            jobs = (await client.get(f"{prefix}/api/v1/jobs")).json()["jobs"]
            assert [job["name"] for job in jobs] == [name]
            async with asgi_stream(app, f"{prefix}{STREAM}") as stream:
                assert [row[0] for row in (await stream.until("snapshot")).data["names"]] == [name]


# FastAPI, guarded by its dependencies.


def admin(x_key: Annotated[str | None, Header()] = None) -> None:
    if x_key != "of this test":
        raise HTTPException(403, "admins only")


def current_user(x_user: Annotated[str | None, Header()] = None) -> str | None:
    return x_user


@pytest.fixture
def app(make_monque: Make) -> FastAPI:
    app = FastAPI()
    setup_monque(app, make_monque(), process_jobs=False)
    return app


KEY = {"x-key": "of this test"}


async def test_dependencies_guard_the_api_the_page_and_the_stream(app: FastAPI) -> None:
    include_dashboard(app, "/monque", dependencies=[Depends(admin)], limits=LIVE)
    transport = httpx2.ASGITransport(app, client=("192.0.2.7", 50_000))
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://shop.example.org") as client,
    ):
        for path in ("", "/", "/api/v1/health", "/openapi.json", STREAM, "/assets/x.js"):
            answer = await client.get(f"/monque{path}")
            assert (answer.status_code, answer.json()) == (403, {"detail": "admins only"}), path
        assert (await client.post("/monque/api/v1/jobs/actions/delete", json={})).status_code == 403
        assert (await client.get("/monque/api/v1/health", headers=KEY)).status_code == 200
        async with asgi_stream(app, f"/monque{STREAM}", x_key="of this test") as stream:
            await stream.until("snapshot")


async def test_it_answers_below_its_path_only_and_is_not_in_the_schema(
    app: FastAPI, connect: Connect
) -> None:
    include_dashboard(app, "/ops/monque", limits=LIVE)
    async with app.router.lifespan_context(app):
        await check(connect(app), app, "/ops/monque")
        assert (await connect(app).get("/ops/monquery")).status_code == 404
    assert app.openapi()["paths"] == {}


async def test_the_actor_is_who_the_dependency_names(app: FastAPI, connect: Connect) -> None:
    seen: list[Actor] = []

    def authorize(access: Any) -> bool:
        seen.append(access.actor)
        return True

    include_dashboard(app, actor=current_user, authorize=authorize)
    client = connect(app)
    async with app.router.lifespan_context(app):
        assert (await client.get("/monque/api/v1/jobs", headers={"x-user": "ada"})).status_code == 200
        assert (await client.get("/monque/api/v1/jobs")).status_code == 401
    assert {actor.name for actor in seen} == {"ada"}


async def test_without_dependencies_only_this_machine_is_let_in(app: FastAPI, connect: Connect) -> None:
    include_dashboard(app)
    async with app.router.lifespan_context(app):
        assert (await connect(app).get("/monque/api/v1/health")).status_code == 200
        assert (await connect(app, client="192.0.2.7").get("/monque/api/v1/health")).status_code == 403


async def test_methods_that_the_dashboard_does_not_take_are_its_to_refuse(
    app: FastAPI, connect: Connect
) -> None:
    include_dashboard(app)
    async with app.router.lifespan_context(app):
        answer = await connect(app).patch("/monque/api/v1/jobs")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_the_monque_stays_that_of_the_application(app: FastAPI, connect: Connect) -> None:
    board = include_dashboard(app, limits=LIVE)
    async with app.router.lifespan_context(app):
        await connect(app).get("/monque/api/v1/jobs")
        await board.close()
        assert await app.state.monque.count_jobs() == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"path": "monque"}, "must be like '/monque'"),
        ({"path": "/monque/"}, "must be like '/monque'"),
        ({"root_path": "/x"}, "knows where it is mounted"),
    ],
)
async def test_what_cannot_be_is_refused(app: FastAPI, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        include_dashboard(app, **arguments)


def test_it_takes_what_the_dashboard_takes() -> None:
    taken = set(inspect.signature(dashboard).parameters) - {"monque", "root_path"}

    assert set(DashboardOptions.__annotations__) == taken


def test_an_application_without_a_monque_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="setup_monque"):
        include_dashboard(FastAPI())


DJANGO = """
import os
from django.conf import settings
settings.configure(SECRET_KEY="of this test", ALLOWED_HOSTS=["*"], ROOT_URLCONF="urls", INSTALLED_APPS=[])
import sys, types
urls = types.ModuleType("urls")
sys.modules["urls"] = urls
from django.http import HttpResponse
from django.urls import path
urls.urlpatterns = [path("shop", lambda request: HttpResponse("shop"))]

from django.core.asgi import get_asgi_application
from monque import Monque
from monque.web import dashboard

shop = get_asgi_application()
board = dashboard(Monque(os.environ["MONQUE_URI"]), root_path="/monque")

async def application(scope, receive, send):
    below = scope["type"] == "http" and (scope["path"] + "/").startswith("/monque/")
    await (board if below else shop)(scope, receive, send)

import asyncio
from support.asgi_stream import asgi_stream
from support.web import client_of

async def main():
    async with client_of(application) as client:
        print((await client.get("/shop")).text)
        print((await client.get("/monque/api/v1/jobs")).json()["jobs"])
        print((await client.get("/monque/openapi.json")).json()["servers"])
        async with asgi_stream(application, "/monque/api/ops/v1/stream") as stream:
            print((await stream.until("snapshot")).data["names"])
    await board.close()

asyncio.run(main())
"""


def test_in_django(server: Any, database: Database) -> None:
    """In a process of its own: Django is set up once, for good."""
    import os

    from support.programs.child import uri_of

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(DJANGO)],
        capture_output=True,
        text=True,
        timeout=60,
        env={
            **os.environ,
            "MONQUE_URI": uri_of(server, database),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
    )

    assert done.stdout.splitlines() == ["shop", "[]", "[{'url': '/monque'}]", "[]"], done.stderr
