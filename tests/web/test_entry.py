"""Who comes in, and what everybody gets to see who does not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from monque import ConfigurationError, Monque
from monque.web import Actor, BasicAuth, BearerAuth, Dashboard, FirstOf, LoopbackOnly, dashboard
from support.aliases import Make
from support.web import Client, Connect, basic

HEALTH = "/api/v1/health"
USERS = BasicAuth({"ada": "lovelace", "grace": "höpper:1"})
TOKENS = BearerAuth({"ci": "t0ken"})


async def test_on_this_machine_no_secret_is_needed(api: Client) -> None:
    answer = await api.get(HEALTH)
    assert (answer.status_code, answer.json()["status"]) == (200, "unavailable")


async def test_from_elsewhere_it_says_how_to_let_others_in(board: Dashboard, connect: Connect) -> None:
    answer = await connect(board, client="10.0.0.1").get(HEALTH)
    assert answer.status_code == 403
    assert "auth=BasicAuth" in answer.json()["error"]
    assert (await connect(board, host="evil.example").get("/api/ops/v1/me")).status_code == 403


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "via", "x-forwarded-host"])
async def test_forwarded_requests_are_not_of_this_machine(api: Client, header: str) -> None:
    assert (await api.get(HEALTH, headers={header: "127.0.0.1"})).status_code == 403


async def test_every_answer_has_the_headers_that_protect_browsers(
    monque: Monque, api: Client, connect: Connect
) -> None:
    closed = connect(dashboard(monque, auth=USERS))
    refused = connect(dashboard(monque), client="10.0.0.1")
    for answer, kept in (
        (await api.get(HEALTH), "no-store"),
        (await api.get("/nowhere"), "no-cache"),  # the page
        (await api.get("/api/nowhere"), "no-store"),
        (await closed.get(HEALTH), "no-store"),
        (await refused.get(HEALTH), "no-store"),
    ):
        headers = answer.headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "camera=()" in headers["permissions-policy"]
        assert headers["cache-control"] == kept
        assert "set-cookie" not in headers
        assert len(headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (basic("ada", "lovelace"), 200),
        (basic("grace", "höpper:1"), 200),
        (basic("ada", "lovelace "), 401),
        (basic("", ""), 401),
        (basic("nobody", "lovelace"), 401),
        ({"authorization": "Basic ???"}, 401),
        ({"authorization": "Basic /w=="}, 401),
        ({"authorization": "Basic"}, 401),
        ({"authorization": "Bearer t0ken"}, 200),
        ({"authorization": "bearer  t0ken"}, 200),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Bearer t0ke"}, 401),
        ({"authorization": "Bearer lovelace"}, 401),
        ({"authorization": "Digest t0ken"}, 401),
    ],
)
async def test_names_and_tokens_let_in_who_has_them(
    monque: Monque, connect: Connect, headers: dict[str, str], status: int
) -> None:
    app = dashboard(monque, auth=FirstOf(TOKENS, USERS))
    answer = await connect(app, client="10.0.0.1", host="ops.example.org").get(HEALTH, headers=headers)
    assert answer.status_code == status
    if status == 401:
        asked = answer.headers["www-authenticate"]
        assert asked == 'Bearer realm="Monque", Basic realm="Monque", charset="UTF-8"'
        assert answer.json() == {"error": "Authentication required"}


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
NAVIGATION = {**BROWSER, "sec-fetch-mode": "navigate", "sec-fetch-site": "none"}


@pytest.mark.parametrize(
    ("auth", "advice"),
    [
        (USERS, "enter a name and a password"),
        (FirstOf(TOKENS, USERS), "enter a name and a password"),
        (TOKENS, "browsers send no token"),
        (lambda _: None, "Log in to the application"),
    ],
)
async def test_a_browser_without_an_identity_gets_a_page_that_says_what_to_do(
    monque: Monque, connect: Connect, auth: Any, advice: str
) -> None:
    client = connect(dashboard(monque, auth=auth), client="10.0.0.1", host="ops.example.org")
    for path in ("/", "/jobs?name=a", "/no/such/page"):
        for headers in (BROWSER, NAVIGATION):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
            assert "<h1>Not authenticated</h1>" in answer.text
            assert "This needs an identity" in answer.text
            assert advice in answer.text
            assert answer.headers["x-request-id"] in answer.text
            assert "style" not in answer.text
            assert "<script" not in answer.text
            assert answer.headers["content-security-policy"].startswith("default-src 'none';")
            as_json = await client.get(path, headers={"accept": "application/json"})
            assert answer.headers.get("www-authenticate") == as_json.headers.get("www-authenticate")


async def test_a_browser_from_elsewhere_gets_a_page_that_says_what_to_pass(
    board: Dashboard, connect: Connect
) -> None:
    answer = await connect(board, client="10.0.0.1").get("/", headers=NAVIGATION)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "auth=BasicAuth({'ada': '…'})" in answer.text

    head = await connect(board, client="10.0.0.1").head("/", headers=NAVIGATION)
    assert (head.status_code, head.headers["content-type"], head.content) == (
        403,
        "text/html; charset=utf-8",
        b"",
    )


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/", {"accept": "*/*"}),
        ("/", {"accept": "application/json"}),
        ("/", {**BROWSER, "sec-fetch-mode": "cors", "sec-fetch-site": "same-origin"}),
        ("/assets/index.js", {"accept": "*/*", "sec-fetch-mode": "no-cors"}),
        ("/api/ops/v1/me", NAVIGATION),
        ("/openapi.json", NAVIGATION),
        ("/api", NAVIGATION),
    ],
)
async def test_what_is_no_visit_of_a_page_is_refused_as_json(
    monque: Monque, connect: Connect, path: str, headers: dict[str, str]
) -> None:
    answer = await connect(dashboard(monque, auth=USERS)).get(path, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert answer.json()["title"] == "Not authenticated"


async def test_first_of_takes_whoever_is_on_this_machine(monque: Monque, connect: Connect) -> None:
    app = dashboard(monque, auth=FirstOf(LoopbackOnly(), USERS))
    assert (await connect(app).get(HEALTH)).status_code == 200
    assert (await connect(app, client="10.0.0.1").get(HEALTH)).status_code == 401


async def test_a_function_tells_who_it_is(monque: Monque, connect: Connect) -> None:
    async def from_header(connection: HTTPConnection) -> Actor | None:
        name = connection.headers.get("x-user")
        return Actor(name=name) if name else None

    client = connect(dashboard(monque, auth=from_header), client=None, host="any.example")
    assert (await client.get(HEALTH, headers={"x-user": "ada"})).status_code == 200
    nobody = await client.get(HEALTH)
    assert nobody.status_code == 401
    assert "www-authenticate" not in nobody.headers


async def test_a_function_that_raises_lets_nobody_in(
    monque: Monque, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(connection: HTTPConnection) -> Actor:
        raise RuntimeError("mongodb://ada:hush@host is away")

    caplog.set_level(logging.ERROR, "monque.web")
    answer = await connect(dashboard(monque, auth=broken)).get("/api/ops/v1/me")
    assert answer.status_code == 500
    assert "hush" not in answer.text
    assert answer.json()["requestId"] == answer.headers["x-request-id"]
    assert answer.json()["requestId"] in caplog.text


async def test_a_function_that_returns_something_else_lets_nobody_in(
    monque: Monque, connect: Connect
) -> None:
    returns_a_text: Any = lambda connection: "ada"  # noqa: E731 - as a careless user would write it
    assert (await connect(dashboard(monque, auth=returns_a_text)).get(HEALTH)).status_code == 500


@pytest.mark.parametrize("name", ["", "x" * 201])
@pytest.mark.parametrize("path", [HEALTH, "/api/ops/v1/me", "/"])
async def test_a_name_that_no_actor_can_have_belongs_to_nobody(
    monque: Monque, connect: Connect, name: str, path: str
) -> None:
    client = connect(dashboard(monque, auth=lambda _: Actor(name=name)))
    answer = await client.get(path)
    assert answer.status_code == 401
    assert name == "" or name not in answer.text
    if path == "/api/ops/v1/me":
        assert f"1 to 200 characters, got {len(name)}" in answer.json()["detail"]


async def test_after_ten_wrong_secrets_also_the_right_one_must_wait(monque: Monque, connect: Connect) -> None:
    app = dashboard(monque, auth=FirstOf(TOKENS, USERS))
    there, elsewhere = connect(app, client="10.0.0.1"), connect(app, client="10.0.0.2")
    for _ in range(10):
        assert (await there.get(HEALTH, headers=basic("ada", "guess"))).status_code == 401

    for headers in (basic("ada", "guess"), basic("ada", "lovelace"), {"authorization": "Bearer t0ken"}):
        answer = await there.get("/api/ops/v1/me", headers=headers)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert answer.json()["status"] == 429
    assert (await elsewhere.get(HEALTH, headers=basic("ada", "lovelace"))).status_code == 200
    # Somebody who sends no secret guesses none.
    assert (await there.get(HEALTH)).status_code == 401


async def test_without_secret_nobody_learns_which_paths_there_are(monque: Monque, connect: Connect) -> None:
    client = connect(dashboard(monque, auth=USERS))
    for path in ("/api/v1/jobs", "/api/nowhere", "/nowhere", "/openapi.json", "/"):
        assert (await client.get(path)).status_code == 401
    assert (await client.put("/api/v1/jobs")).status_code == 401


@pytest.mark.parametrize("path", [HEALTH, "/openapi.json"])
async def test_pages_of_other_origins_get_nothing(api: Client, path: str) -> None:
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
    ):
        answer = await api.get(path, headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


async def test_a_listed_origin_may_ask_and_read(monque: Monque, connect: Connect) -> None:
    client = connect(dashboard(monque, auth=USERS, allowed_origins=["https://ops.example.org"]))
    listed = {"origin": "https://ops.example.org", "sec-fetch-site": "cross-site"}

    asked = await client.options(
        "/api/v1/jobs/actions/cancel", headers={**listed, "access-control-request-method": "POST"}
    )
    assert (asked.status_code, asked.content) == (204, b"")
    assert asked.headers["access-control-allow-origin"] == "https://ops.example.org"
    assert asked.headers["access-control-allow-credentials"] == "true"
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert "If-Match" in asked.headers["access-control-allow-headers"]

    answer = await client.get(HEALTH, headers={**listed, **basic("ada", "lovelace")})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://ops.example.org"
    assert answer.headers["vary"] == "Origin"
    refused = await client.get(HEALTH, headers=listed)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://ops.example.org"

    other = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for answer in (await client.options(HEALTH, headers=other), await client.get(HEALTH, headers=other)):
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "Origin"


async def test_a_rebinding_host_is_refused_with_allowed_hosts(monque: Monque, connect: Connect) -> None:
    app = dashboard(monque, auth=USERS, allowed_hosts=["ops.example.org"])
    right = basic("ada", "lovelace")
    assert (await connect(app, host="ops.example.org:8443").get(HEALTH, headers=right)).status_code == 200
    assert (await connect(app, host="rebound.example").get(HEALTH, headers=right)).status_code == 403


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("root_path", "/a b"),
        ("root_path", "/monque/"),
        ("allowed_hosts", "ops.example.org"),
        ("allowed_origins", ["*"]),
        ("frame_ancestors", ["'self'; script-src *"]),
    ],
)
def test_wrong_arguments_are_refused_by_name(make_monque: Make, option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=option):
        dashboard(make_monque(), **{option: value})


@pytest.mark.parametrize(
    "make",
    [
        lambda: BasicAuth({}),
        lambda: BasicAuth({"ada": ""}),
        lambda: BasicAuth({"a:b": "secret"}),
        lambda: BearerAuth({"": "secret"}),
        lambda: BearerAuth({"ci": None}),
        lambda: FirstOf(),
    ],
)
def test_ways_to_come_in_that_let_in_nobody_or_anybody_are_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_no_secret_is_in_what_is_printed_of_them() -> None:
    assert "lovelace" not in repr(USERS) + str(vars(USERS))
    assert "t0ken" not in repr(TOKENS) + str(vars(TOKENS))
