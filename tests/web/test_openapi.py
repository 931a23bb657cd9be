"""The OpenAPI document of both APIs. That answers keep to it is checked by every client of these tests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.applications import Starlette
from starlette.routing import Mount

from monque import Monque
from monque.web import dashboard
from monque.web.access.permissions import Action
from monque.web.app import ROUTES
from monque.web.route import OPS, V1, Need
from support.contract_client import FILE
from support.web import Client, Connect


@pytest.fixture
async def document(api: Client) -> Any:
    answer = await api.get("/openapi.json")
    assert answer.status_code == 200
    return answer.json()


async def test_it_is_valid_openapi_3_1(document: Any) -> None:
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"].startswith("3.1")


async def test_it_holds_the_contract_unchanged(document: Any) -> None:
    contract = json.loads(FILE.read_text())
    assert document["info"] == contract["info"]
    for path, methods in contract["paths"].items():
        assert document["paths"][path] == methods
    for name, schema in contract["components"]["schemas"].items():
        assert document["components"]["schemas"][name] == schema


async def test_it_holds_every_route_and_no_other(document: Any) -> None:
    routes = {(route.path, route.method.lower()) for route in ROUTES.routes}
    documented = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert documented == routes
    ids = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len(ids) == len(set(ids))


async def test_our_paths_have_their_tag_and_our_components_their_prefix(document: Any) -> None:
    contract = json.loads(FILE.read_text())
    ours = set(document["components"]["schemas"]) - set(contract["components"]["schemas"])
    assert {name for name in ours if not name.startswith("Ops")} == set()
    for path in set(document["paths"]) - set(contract["paths"]):
        assert all(operation["tags"] == ["ops"] for operation in document["paths"][path].values())


async def test_its_server_is_the_mount(monque: Monque, connect: Connect) -> None:
    nested = Starlette(routes=[Mount("/a", Starlette(routes=[Mount("/b", dashboard(monque))]))])
    assert (await connect(nested).get("/a/b/openapi.json")).json()["servers"] == [{"url": "/a/b"}]
    given = connect(dashboard(monque, root_path="/ops"))
    assert (await given.get("/openapi.json")).json()["servers"] == [{"url": "/ops"}]
    assert (await given.get("/ops/openapi.json")).json()["servers"] == [{"url": "/ops"}]


async def test_it_needs_an_identity_and_no_right(monque: Monque, connect: Connect) -> None:
    nobody: Any = lambda connection: None  # noqa: E731 - shorter
    assert (await connect(dashboard(monque, auth=nobody)).get("/openapi.json")).status_code == 401


@pytest.mark.parametrize("route", ROUTES.routes, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_needs_a_right_or_says_why_not(route: Any) -> None:
    without_right = {f"{V1}/health", f"{V1}/capabilities", f"{OPS}/me", "/openapi.json"}
    by_body = {f"{OPS}/bulk", f"{OPS}/bulk/preview", f"{OPS}/failures/{{fingerprint}}/bulk"}
    if route.path in without_right:
        assert route.right is Need.IDENTITY
    elif route.path in by_body:
        assert route.right is Need.BY_BODY
    else:
        assert isinstance(route.right, Action)
        assert not route.writes or route.right not in (Action.READ, Action.AUDIT, Action.PAYLOAD)


async def test_no_filter_of_the_document_is_null(document: Any, api: Client) -> None:
    """A filter that is null must not mean all jobs, so it is refused."""
    filters = document["components"]["schemas"]["OpsSelection"]["properties"]
    assert {name for name, schema in filters.items() if '"null"' in json.dumps(schema)} == set()
    assert "name" in filters

    asked = {"action": "retry", "filter": {"name": None}}
    refused = await api.post("/api/ops/v1/bulk/preview", json=asked)
    assert (refused.status_code, "must not be null" in refused.text) == (400, True)
