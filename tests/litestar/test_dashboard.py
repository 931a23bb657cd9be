"""The dashboard in a Litestar application: its prefix, its guards, its end."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException

from monque import ConfigurationError, Monque
from monque.litestar import DashboardConfig, MonquePlugin
from monque.web import Access, BasicAuth
from support.web import KEY, Connect


def staff_only(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
    if connection.headers.get("x-user") is None:
        raise NotAuthorizedException("staff only")


def user_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    return connection.headers.get("x-user")


@pytest.mark.parametrize("app_path", ["", "/shop"])
async def test_guards_of_litestar_stand_before_pages_and_api(
    monque: Monque, connect: Connect, app_path: str
) -> None:
    seen: set[str] = set()

    def authorize(access: Access) -> bool:
        seen.add(access.actor.name)
        return True

    config = DashboardConfig(guards=[staff_only], actor=user_of, options={"authorize": authorize})
    app = Litestar([], path=app_path or None, plugins=[MonquePlugin(monque, dashboard=config)])
    async with app.lifespan():
        client = connect(app)
        for path in ("", "/", "/api/v1/jobs", "/jobs", "/openapi.json"):
            assert (await client.get(f"{app_path}/monque{path}")).status_code == 401
        known = connect(app, headers={"x-user": "ada"})
        assert (await known.get(f"{app_path}/monque/api/v1/jobs")).json()["jobs"] == []
        document = (await known.get(f"{app_path}/monque/openapi.json")).json()
        assert document["servers"] == [{"url": f"{app_path}/monque"}]
        assert (await known.get(f"{app_path}/monque/")).status_code == 200
    assert seen == {"ada"}


async def test_somebody_without_a_name_is_not_let_in(monque: Monque, connect: Connect) -> None:
    config = DashboardConfig(actor=lambda _: "")
    app = Litestar([], plugins=[MonquePlugin(monque, dashboard=config)])
    async with app.lifespan():
        answer = await connect(app).get("/monque/api/ops/v1/me")
        assert answer.status_code == 401
        assert "an actor's name must be" in answer.json()["detail"]


async def test_without_guards_only_this_machine_is_let_in_with_the_key(
    monque: Monque, connect: Connect
) -> None:
    app = Litestar([], plugins=[MonquePlugin(monque, dashboard=DashboardConfig(path="/ops"))])
    async with app.lifespan():
        client = connect(app)
        assert (await client.get("/ops/api/v1/jobs")).status_code == 403
        entered = await client.get(f"/ops/?key={KEY}")
        assert (entered.status_code, entered.headers["location"]) == (303, "./")
        assert "; Path=/ops;" in entered.headers["set-cookie"]
        assert (await client.get("/ops/api/v1/jobs")).status_code == 200
        proxied = connect(app, headers={"authorization": f"Bearer {KEY}", "x-forwarded-for": "192.0.2.7"})
        assert (await proxied.get("/ops/api/v1/jobs")).status_code == 403


async def test_options_of_the_dashboard(monque: Monque, connect: Connect) -> None:
    options = {"auth": BasicAuth({"ada": "of this test"}), "read_only": True}
    app = Litestar([], plugins=[MonquePlugin(monque, dashboard=DashboardConfig(options=options))])
    async with app.lifespan():
        assert (await connect(app).get("/monque/api/v1/jobs")).status_code == 401
        known = connect(app, auth=("ada", "of this test"))
        assert (await known.get("/monque/api/v1/jobs")).status_code == 200


@pytest.mark.parametrize("path", ["monque", "/monque/", "/{name}"])
def test_a_wrong_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="must be like '/monque'"):
        DashboardConfig(path=path)


def test_the_prefix_of_a_proxy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="knows where it is mounted"):
        DashboardConfig(options={"root_path": "/ops"})
