"""The dashboard as an ASGI app: its life, and what every route does with any request."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from pymongo.errors import ExecutionTimeout, NetworkTimeout

from monque import Monque, NotOpenError, ReadTimeoutError
from monque.web import Dashboard, Limits, dashboard, lifecycle, static_files
from monque.web.errors import Problem
from monque.web.requests import read_query
from support.aliases import Collection, Database, Make
from support.jobs import document
from support.options import QUICK
from support.waiting import eventually
from support.web import Client, Connect, client_of

HEALTH = "/api/v1/health"
OPS = "/api/ops/v1"
VIEWS = "/api/v1/queue-views"
MANY = "/api/v1/jobs/actions/cancel"


def is_open(monque: Monque) -> bool:
    try:
        return monque.database is not None
    except NotOpenError:
        return False


async def test_the_first_request_opens_a_closed_monque_and_close_closes_it(
    make_monque: Make, connect: Connect
) -> None:
    monque = make_monque()
    async with dashboard(monque) as board:
        assert not is_open(monque)
        answers = await asyncio.gather(*(connect(board).get(VIEWS) for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
        assert is_open(monque)
    assert not is_open(monque)


async def test_a_monque_that_the_host_opened_stays_open(monque: Monque, connect: Connect) -> None:
    async with dashboard(monque) as board:
        assert (await connect(board).get(VIEWS)).status_code == 200
    assert is_open(monque)


async def test_after_close_requests_are_refused_until_it_is_entered_again(
    make_monque: Make, connect: Connect
) -> None:
    board = dashboard(make_monque())
    client = connect(board)
    assert (await client.get(VIEWS)).status_code == 200
    await board.close()
    await board.close()

    refused = await client.get(VIEWS)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
    async with board:
        assert (await client.get(VIEWS)).status_code == 200


async def test_if_the_host_closes_its_monque_requests_say_so(monque: Monque, connect: Connect) -> None:
    client = connect(dashboard(monque))
    assert (await client.get(VIEWS)).status_code == 200
    await monque.close()
    assert (await client.get("/api/v1/jobs")).status_code == 503
    assert (await client.get(HEALTH)).json()["status"] == "unavailable"


async def test_the_first_look_at_a_new_dashboard_has_failures(
    monque: Monque, connect: Connect, collection: Collection
) -> None:
    await collection.insert_one(document(status="failed", failReason="OSError: refused"))
    async with dashboard(monque) as board:
        answer = await connect(board).get(f"{OPS}/failures")
        assert [group["type"] for group in answer.json()["groups"]] == ["OSError"]
    async with dashboard(monque) as board:
        assert (await connect(board).get(f"{OPS}/me")).json()["offers"]["failures"] is True


async def test_while_the_index_of_failures_is_built_they_are_being_prepared(
    monque: Monque, api: Client, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not begin to build an index before open transactions of the collection have ended."""
    monkeypatch.setattr(lifecycle, "_PREPARED_WITHIN", 0.1)
    async with collection.database.client.start_session() as session, await session.start_transaction():
        await collection.insert_one(document(status="failed", failReason="OSError: refused"), session=session)
        me, refused, overview = [await api.get(f"{OPS}{path}") for path in ("/me", "/failures", "/overview")]
        assert me.json()["offers"]["failures"] is True
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert refused.json()["title"] == "Being prepared"
        assert "groups" not in overview.json()

    async def check() -> None:
        answer = await api.get(f"{OPS}/failures")
        assert [group["type"] for group in answer.json().get("groups", ())] == ["OSError"]

    await eventually(check)


async def test_without_the_right_to_make_indexes_it_makes_none(
    make_monque: Make, connect: Connect, collection: Collection
) -> None:
    monque = await make_monque(options=replace(QUICK, create_indexes=False)).open()
    async with dashboard(monque) as board:
        assert (await connect(board).get(VIEWS)).status_code == 200
    assert "monque_failed" not in await collection.index_information()


async def test_a_database_that_is_away_is_503_and_health_still_answers(
    make_monque: Make, connect: Connect
) -> None:
    monque = make_monque("mongodb://127.0.0.1:1/shop?serverSelectionTimeoutMS=200")
    client = connect(dashboard(monque))

    answer = await client.get(VIEWS)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert set(answer.json()) == {"error"}
    assert (await client.get(HEALTH)).json() == {"status": "unavailable", "scheduler": {"healthy": False}}


@pytest.mark.parametrize("query", ["deep=1", "a=1&a=2", "%ff", "x=" + "x" * 10_000])
async def test_health_is_200_with_any_query(api: Client, query: str) -> None:
    assert (await api.get(f"{HEALTH}?{query}")).status_code == 200


async def test_another_event_loop_than_the_first_gets_a_500_that_says_so(
    monque: Monque, board: Dashboard, api: Client
) -> None:
    assert (await api.get(HEALTH)).status_code == 200
    got: list[Any] = []

    async def ask() -> None:
        async with client_of(board) as client:
            got.append(await client.get("/api/ops/v1/me"))

    thread = threading.Thread(target=lambda: asyncio.run(ask()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert got[0].status_code == 500
    assert "another event loop" in got[0].json()["detail"]


async def test_two_monques_in_one_process_do_not_mix(
    make_monque: Make, database: Database, connect: Connect
) -> None:
    await database["first"].insert_one(document(name="first"))
    await database["second"].insert_many([document(name="second"), document(name="second")])
    boards = [dashboard(make_monque(options=replace(QUICK, collection=each))) for each in ("first", "second")]
    answers = await asyncio.gather(*(connect(board).get("/api/v1/jobs") for board in boards))
    assert [[job["name"] for job in answer.json()["jobs"]] for answer in answers] == [
        ["first"],
        ["second"] * 2,
    ]
    for board in boards:
        await board.close()


async def test_a_websocket_is_closed_before_it_is_accepted(board: Dashboard) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await board({"type": "websocket", "path": "/api/ops/v1/stream"}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_a_server_of_its_own_closes_it_at_its_end(make_monque: Make, connect: Connect) -> None:
    monque = make_monque()
    board = dashboard(monque)
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        if sent:
            assert (await connect(board).get(VIEWS)).status_code == 200
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await board({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert not is_open(monque)


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/v1", "/api/v1/", "/api/v2/jobs", "/api/v1/jobs/", "/api/ops"]
)
async def test_unknown_paths_of_the_api_are_404_as_json(api: Client, path: str) -> None:
    answer = await api.get(path)
    assert answer.status_code == 404
    is_v1 = path.startswith("/api/v1/")
    assert answer.json()["error" if is_v1 else "type"] == (
        "Not found" if is_v1 else "urn:monque:problem:not-found"
    )


async def test_a_problem_has_all_the_members_of_rfc_9457(api: Client) -> None:
    answer = await api.get("/api/ops/nowhere%22")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "urn:monque:problem:not-found",
        "title": "Not found",
        "status": 404,
        "detail": "Nothing is at this path of the API.",
        "instance": "/api/ops/nowhere%22",
        "requestId": answer.headers["x-request-id"],
        "errors": [],
    }


async def test_a_wrong_method_is_405_with_those_that_are_right(api: Client) -> None:
    answer = await api.put("/api/v1/jobs/abc")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, HEAD")
    assert (await api.get(MANY)).headers["allow"] == "POST"
    assert (await api.options(HEALTH)).status_code == 405


async def test_head_is_get_without_the_body(api: Client, collection: Collection) -> None:
    await collection.insert_one(document())
    got, head = await api.get("/api/v1/jobs"), await api.head("/api/v1/jobs")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]
    assert head.headers["content-type"] == "application/json"
    assert (await api.head("/api/v1/jobs/nonsense")).status_code == 400


async def test_head_of_the_stream_ends(api: Client) -> None:
    answer = await api.head("/api/ops/v1/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_mount_without_its_slash_leads_to_the_one_with_it(monque: Monque, connect: Connect) -> None:
    answer = await connect(dashboard(monque, root_path="/ops/monque")).get("/ops/monque")
    assert (answer.status_code, answer.headers["location"]) == (307, "./monque/")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{}", "application/json", 200),
        (b"{}", "application/json; charset=utf-8", 200),
        (b"{}", "Application/JSON", 200),
        (b"{}", "text/plain", 415),
        (b"{}", "application/x-www-form-urlencoded", 415),
        (b"{}", "multipart/form-data; boundary=x", 415),
        (b"{}", "application/xml", 415),
        (b"{}", None, 415),
        (b"", None, 415),
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff{}", "application/json", 400),
        (b'{"name": NaN}', "application/json", 400),
        (b'{"name": "\\ud800"}', "application/json", 400),
        (b"[" * 50_000, "application/json", 400),
        (b'{"a":' * 9_000 + b"1" + b"}" * 9_000, "application/json", 400),
        (b'{"limit": ' + b"9" * 5_000 + b"}", "application/json", 400),
        (b"null", "application/json", 400),
        (b'{"name": "%s"}' % (b"x" * 64 * 1024), "application/json", 413),
        (b"x" * 10_000_000, "application/json", 413),
    ],
)
async def test_only_json_of_a_bearable_size_is_taken(
    api: Client, collection: Collection, body: bytes, content_type: str | None, status: int
) -> None:
    await collection.insert_one(document(name="kept"))
    headers = {} if content_type is None else {"content-type": content_type}
    answer = await api.post(MANY, content=body, headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert set(answer.json()) == {"error"}
        assert await collection.count_documents({"status": "cancelled"}) == 0


async def test_a_body_that_comes_in_pieces_is_not_read_beyond_the_limit(
    board: Dashboard, api: Client
) -> None:
    read = 0

    async def pieces() -> Any:
        nonlocal read
        for _ in range(1_000):
            read += 1
            yield b" " * 16 * 1024

    answer = await api.post(MANY, content=pieces(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert read < 10


async def test_the_limit_of_bodies_can_be_set(monque: Monque, connect: Connect) -> None:
    client = connect(dashboard(monque, limits=Limits(body=10)))
    assert (await client.post(MANY, json={})).status_code == 200
    assert (await client.post(MANY, json={"name": "longer"})).status_code == 413


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("name=" + "x" * 200, 200),
        ("name=" + "x" * 9_000, 414),
        ("&".join(f"k{each}=1" for each in range(8_000)), 414),
        ("nmae=x", 400),
        ("name=%ff", 400),
        ("name=a&name=b", 400),
    ],
)
async def test_queries_that_are_too_long_or_unknown_are_refused(api: Client, query: str, status: int) -> None:
    answer = await api.get(f"/api/v1/jobs?{query}")
    assert answer.status_code == status
    if status == 400:
        assert answer.json() == {"error": "Input validation failed"}


def test_a_hundred_thousand_keys_are_not_even_parsed() -> None:
    with pytest.raises(Problem) as caught:
        read_query(b"&".join(b"k%d=1" % each for each in range(100_000)), None)
    assert caught.value.code == 414


@pytest.mark.parametrize(
    ("path", "accept", "status"),
    [("/", "text/html", 503), ("/jobs/1", "*/*", 503), ("/", None, 503), ("/", "application/json", 406)],
)
async def test_pages_that_are_not_built_say_how_to_build_them(
    api: Client, monkeypatch: pytest.MonkeyPatch, path: str, accept: str | None, status: int
) -> None:
    monkeypatch.setattr(static_files, "built", lambda: None)
    answer = await api.get(path, headers={"accept": accept or ""} if accept else {})
    assert answer.status_code == status
    if status == 503:
        assert answer.json()["type"] == "urn:monque:problem:not-built"
        assert "run `make ui`" in answer.json()["detail"]
        assert "install it without MONQUE_UI=skip" in answer.json()["detail"]


async def test_without_pages_there_is_only_the_api(monque: Monque, connect: Connect) -> None:
    client = connect(dashboard(monque, ui=False))
    assert (await client.get("/")).status_code == 404
    assert (await client.get(HEALTH)).status_code == 200


async def test_a_read_that_takes_too_long_is_given_up_with_504(
    monque: Monque, api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    async def stuck(*_: Any, **__: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await api.get("/api/v1/jobs")  # the first request prepares the dashboard
    monkeypatch.setattr("monque.web.lifecycle.REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(monque, "queue_views", stuck)
    answer = await api.get(VIEWS)
    assert answer.status_code == 504
    assert "monque indexes" in answer.json()["error"]


@pytest.mark.parametrize(
    ("cause", "helps"), [(ExecutionTimeout("too long", 50), True), (NetworkTimeout("no answer"), False)]
)
async def test_a_read_that_takes_too_long_is_504_and_says_what_helps(
    monque: Monque, api: Client, monkeypatch: pytest.MonkeyPatch, cause: Exception, helps: bool
) -> None:
    """An index helps where the server gave up the read, not where it did not answer at all."""

    async def slow(*_: Any, **__: Any) -> None:
        raise ReadTimeoutError("could not list jobs within 5 s") from cause

    monkeypatch.setattr(monque, "list_jobs", slow)
    for path in ("/api/v1/jobs", "/api/ops/v1/jobs"):
        answer = await api.get(path)
        assert answer.status_code == 504
        assert ("monque indexes --create --listing" in answer.text) is helps


async def test_a_body_that_never_comes_is_given_up_with_504(
    api: Client, monkeypatch: pytest.MonkeyPatch, collection: Collection
) -> None:
    async def stuck() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr("monque.web.lifecycle.REQUEST_SECONDS", 0.05)
    answer = await api.post(MANY, content=stuck(), headers={"content-type": "application/json"})
    assert answer.status_code == 504


async def test_an_auth_that_never_answers_is_given_up_with_504(
    monque: Monque, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stuck(connection: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("monque.web.lifecycle.REQUEST_SECONDS", 0.05)
    assert (await connect(dashboard(monque, auth=stuck)).get(HEALTH)).status_code == 504


async def test_a_write_that_takes_too_long_goes_on_after_its_504(
    monque: Monque, board: Dashboard, api: Client, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await collection.insert_one(document())
    bulk, may_go_on = monque.bulk, asyncio.Event()

    async def slow(*args: Any, **more: Any) -> Any:
        await may_go_on.wait()
        return await bulk(*args, **more)

    await api.get(VIEWS)  # the first request prepares the dashboard
    # The write must begin within it, also on a busy machine.
    monkeypatch.setattr("monque.web.lifecycle.REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(monque, "bulk", slow)
    answer = await api.post(MANY, json={})
    assert answer.status_code == 504
    assert "goes on" in answer.json()["error"]
    may_go_on.set()
    await board.close()
    assert await collection.count_documents({"status": "cancelled"}) == 1
