"""A secret that somebody may not see is in nothing that they get, and they cannot find it out by asking."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from monque import Job, JobStateError, Monque, StepError
from monque._views.base import Secret
from monque._views.job import JobRecord
from monque.web import Action, Actor, Dashboard, Limits, dashboard
from monque.web.access.permissions import Access
from monque.web.access.redaction import Redaction
from support.aliases import Collection
from support.asgi_stream import AsgiStream, asgi_stream
from support.examples import AS_OF, routes
from support.jobs import document
from support.secretive import MARKER, SEEN, marker, secretive_jobs
from support.walking import Request, There, walk
from support.web import Client, client_of

NAME = "payroll"
OPS = "/api/ops/v1"
QUICK = Limits(tick=timedelta(milliseconds=50))


def shows_nothing(job: Job[Any], data: Any, actor: Actor) -> Any:
    return data if actor.name == "boss" else None


async def shows_the_amount(job: Job[Any], data: Any, actor: Actor) -> Any:
    return data if actor.name == "boss" else {"amount": data["amount"]}


def knows_documents_alone(job: Job[Any], data: Any, actor: Actor) -> Any:
    if actor.name != "boss" and isinstance(data, dict):
        return {"amount": data.get("amount")}
    return data


def raises(job: Job[Any], data: Any, actor: Actor) -> Any:
    if actor.name == "boss":
        return data
    raise LookupError(str(data))


def refuses_payloads(access: Access) -> bool:
    name = access.job.name if access.job else access.filter.name if access.filter else None
    return access.actor.name == "boss" or name != NAME or access.action is not Action.PAYLOAD


BLIND: dict[str, dict[str, Any]] = {
    "without the right payload": {},
    "a hook refuses payloads of the name": {"authorize": refuses_payloads},
    **{
        f"by name: {hook.__name__}": {"redact": Redaction(by_name={NAME: hook})}
        for hook in (shows_nothing, shows_the_amount, knows_documents_alone, raises)
    },
}


def actor_of(name: str, options: dict[str, Any]) -> Actor:
    may = set(Action) - {Action.PAYLOAD} if name == "mallory" and not options else None
    return Actor(name, may=may)


class Payroll:
    """The jobs with the secrets, as often as they are wanted again."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.jobs = secretive_jobs(NAME)
        self.ids = {state: str(each["_id"]) for state, each in self.jobs.items()}

    async def restore(self) -> None:
        await self._collection.delete_many({})
        await self._collection.insert_many(list(self.jobs.values()))

    def requests(self, fingerprint: str) -> Iterator[Request]:
        """The walk, and again for each job what is about one; what only looks comes first."""
        made = [
            request
            for job in self.ids.values()
            for request in walk(
                There(name=NAME, job=job, schedule=self.ids["schedule"], fingerprint=fingerprint)
            )
            if job == self.ids["failed"] or request.route.part == "id"
        ]
        yield from sorted(made, key=lambda request: request.route.writes)


@pytest.fixture
async def payroll(monque: Monque, collection: Collection) -> AsyncIterator[Payroll]:
    await monque.begin_use("failures")
    made = Payroll(collection)
    await made.restore()
    yield made
    await collection.delete_many({})


@pytest.fixture
async def boards(monque: Monque) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:

        async def make(name: str, options: dict[str, Any]) -> tuple[Dashboard, Client]:
            actor = actor_of(name, options)
            board = dashboard(monque, auth=lambda _: actor, allow_enqueue=True, limits=QUICK, **options)
            await stack.enter_async_context(board)
            return board, await stack.enter_async_context(client_of(board))

        yield make


async def edited(client: Client, payroll: Payroll) -> None:
    """The trail has an edit of the schedule's payload by somebody who sees it."""
    body = {"payload": {"amount": 7, "note": marker("edited")}, "note": "x"}
    answer = await client.put(f"{OPS}/schedules/{payroll.ids['schedule']}", json=body)
    assert answer.status_code == 200, answer.text


async def fingerprint_of(client: Client) -> str:
    groups = (await client.get(f"{OPS}/failures")).json()["groups"]
    return str(groups[0]["fingerprint"])


async def test_each_secret_field_of_the_view_of_a_job_has_a_marker(payroll: Payroll, monque: Monque) -> None:
    """A field that is marked as a secret is tried by the tests below."""
    secret = [name for name, field in JobRecord.model_fields.items() if Secret in field.metadata]
    jobs = [await monque.get_job(each) for each in payroll.ids.values()]

    assert {"data", "fail_reason", "unique_key"} < set(secret)
    assert [name for name in secret if not any(MARKER in str(getattr(job, name)) for job in jobs)] == []


@pytest.mark.parametrize("options", BLIND.values(), ids=BLIND.keys())
async def test_a_secret_is_in_no_answer_stream_trail_export_or_log_of_who_may_not_see_it(
    payroll: Payroll, boards: Any, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    caplog.set_level(logging.DEBUG, "monque")
    _, boss = await boards("boss", options)
    board, client = await boards("mallory", options)
    await edited(boss, payroll)
    async with asgi_stream(board) as stream:
        await stream.until("snapshot")
        for request in payroll.requests(await fingerprint_of(client)):
            if request.route.writes:
                await payroll.restore()
            answer = await request.send(client)
            assert MARKER not in answer.text, f"{request}: {answer.text}"
            assert answer.status_code in (200, 403, 404, 409, 412), f"{request}: {answer.text}"
        export = await client.get(f"{OPS}/audit/export")
        assert (export.status_code, MARKER in export.text) == (200, False)
        assert "schedule-edit" in export.text
        assert MARKER not in await all_of(stream, boss)
    assert MARKER not in caplog.text


async def all_of(stream: AsgiStream, other: Client) -> str:
    """What came by a stream until it tells of an action that happens now."""
    text = stream.text
    await other.post(f"{OPS}/queue/pause", json={"name": "the-end"})
    while (told := await stream.until("action")).data.get("name") != "the-end":
        text += str(told.data)
    return text + str(told.data)


async def test_who_may_see_them_sees_all_of_them(payroll: Payroll, boards: Any) -> None:
    """Else the test above would find nothing whatever the surface told."""
    _, boss = await boards("boss", BLIND["by name: shows_the_amount"])
    texts = [
        (await request.send(boss)).text
        for request in payroll.requests(await fingerprint_of(boss))
        if not request.route.writes
    ]
    assert {each for each in SEEN if not any(each in text for text in texts)} == set()
    lists = [text for text in texts if '"jobs":[' in text]
    assert any(marker("reason") in text and marker("key") in text for text in lists)


GUESSES = [{"payload.note": '"{}"'}, {"uniqueKey": "{}"}]


@pytest.mark.parametrize("options", BLIND.values(), ids=BLIND.keys())
async def test_a_hidden_value_cannot_be_guessed(
    payroll: Payroll, boards: Any, options: dict[str, Any]
) -> None:
    """A right guess and a wrong one are refused alike, with a sentence, before anything is counted."""
    _, client = await boards("mallory", options)
    _, boss = await boards("boss", options)
    for guess in GUESSES:
        for value in (marker("payload"), marker("key"), "wrong"):
            chosen = {"name": NAME, **{field: text.format(value) for field, text in guess.items()}}
            for send in asking(chosen):
                refused, answered = await send(client), await send(boss)
                assert refused.status_code == 403, f"{chosen}: {refused.text}"
                assert refused.json()["detail"].endswith("."), refused.text
                assert answered.status_code == 200, answered.text
    found = (await client.get(f"{OPS}/search", params={"q": marker("key")})).json()
    assert found["jobs"] == []
    assert (await client.get(f"{OPS}/jobs", params={"uniqueKey": marker("key")})).status_code == 403


def asking(chosen: dict[str, str]) -> list[Any]:
    """Every way to ask for jobs of a filter: the routes whose query or body has one."""
    lists = [route.path for route in routes(writing=False) if "unique_key" in _fields(route.query)]
    assert lists == [f"{OPS}/jobs", f"{OPS}/jobs/count"]
    bulk = {"action": "cancel", "filter": chosen}
    bodies = {f"{OPS}/bulk/preview": bulk, f"{OPS}/bulk": {**bulk, "asOf": AS_OF}}
    assert {route.path for route in routes() if "filter" in _fields(route.body)} == bodies.keys()
    return [
        *(lambda client, path=path: client.get(path, params=chosen) for path in lists),
        *(lambda client, path=path, body=body: client.post(path, json=body) for path, body in bodies.items()),
    ]


def _fields(model: Any) -> Any:
    return getattr(model, "model_fields", ())


@pytest.mark.parametrize(
    "field", ["payload.password", "payload.card.number", "payload.deep.apiKey", "payload.0.token"]
)
async def test_nobody_searches_for_what_is_masked_for_everybody(
    payroll: Payroll, boards: Any, field: str
) -> None:
    _, boss = await boards("boss", {})
    for send in asking({"name": NAME, field: '"1234"'}):
        answer = await send(boss)
        assert (answer.status_code, field in answer.json()["detail"]) == (403, True), answer.text


async def test_credentials_in_a_uri_cannot_be_guessed(payroll: Payroll, boards: Any) -> None:
    _, boss = await boards("boss", {})
    for send in asking({"name": NAME, "payload.uri": '"mongodb://ada:1234@host/x"'}):
        assert (await send(boss)).status_code == 403


def hides_of_some(job: Job[Any], data: Any, actor: Actor) -> Any:
    return {**data, "pin": "hidden"} if isinstance(data, dict) and data.get("vip") else data


@pytest.mark.parametrize("redact", [{"hook": hides_of_some}, {"by_name": {NAME: hides_of_some}}])
async def test_a_value_that_a_hook_hides_in_some_jobs_cannot_be_guessed_in_others(
    monque: Monque, collection: Collection, boards: Any, redact: dict[str, Any]
) -> None:
    payloads: list[dict[str, Any]] = [
        {"pin": 1},
        {"pin": 2, "vip": True},
        {"pin": 3, "items": [{"price": 1}]},
    ]
    await collection.insert_many([document(name=NAME, data=each) for each in payloads])
    _, client = await boards("mallory", {"redact": Redaction(**redact)})
    for path, status in (("pin", 403), ("vip", 200), ("items.price", 200), ("other", 200)):
        answer = await client.get(f"{OPS}/jobs", params={"name": NAME, f"payload.{path}": "1"})
        assert answer.status_code == status, f"{path}: {answer.text}"


async def test_a_hook_that_raises_for_one_payload_hides_this_job_alone(
    collection: Collection, boards: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(job: Job[Any], data: Any, actor: Actor) -> Any:
        return {"sum": data["price"] * 1}

    bad, good = document(data=marker("payload"), failReason="X: y"), document(data={"price": 2})
    await collection.insert_many([bad, good])
    _, client = await boards("boss", {"redact": Redaction(hook=hook)})
    page = {each["id"]: each for each in (await client.get(f"{OPS}/jobs")).json()["jobs"]}
    first = {each["id"]: each for each in (await client.get("/api/v1/jobs")).json()["jobs"]}
    one = await client.get(f"{OPS}/jobs/{bad['_id']}")

    assert (one.status_code, one.json()["payload"], one.json()["payloadHidden"]) == (200, None, True)
    hidden, shown = page[str(bad["_id"])], page[str(good["_id"])]
    assert hidden["payloadHidden"] is True
    assert "failureReason" not in hidden
    assert shown["payloadPreview"] == '{"sum": 2}'
    assert (first[str(bad["_id"])]["payload"], first[str(good["_id"])]["payload"]) == (None, {"sum": 2})
    assert "raised TypeError at" in caplog.text
    assert MARKER not in caplog.text


async def test_a_text_hook_that_raises_hides_the_text(collection: Collection, boards: Any) -> None:
    await collection.insert_one(document(status="failed", failReason=marker("reason"), data={"a": 1}))

    def text(given: str) -> str:
        raise LookupError(given)

    _, client = await boards("boss", {"redact": Redaction(text=text)})
    [job] = (await client.get(f"{OPS}/jobs")).json()["jobs"]
    assert (job["payloadPreview"], "failureReason" in job) == ('{"a": 1}', False)


async def test_the_trail_shows_an_edit_to_those_who_may_see_the_payload(
    payroll: Payroll, boards: Any
) -> None:
    _, boss = await boards("boss", {})
    await edited(boss, payroll)
    [entry] = (await boss.get(f"{OPS}/audit", params={"action": "schedule-edit"})).json()["entries"]
    assert (entry["before"]["payload"]["note"], entry["after"]["payload"]["note"]) == (
        marker("payload"),
        marker("edited"),
    )


async def test_an_entry_that_was_stored_before_the_hook_is_shown_without_the_payload(
    monque: Monque, payroll: Payroll, boards: Any
) -> None:
    await edited((await boards("boss", {}))[1], payroll)
    _, client = await boards("mallory", BLIND["by name: shows_nothing"])
    assert MARKER not in (await client.get(f"{OPS}/audit")).text


async def test_no_log_line_tells_the_value_of_a_step_or_a_signal(
    monque: Monque, caplog: pytest.LogCaptureFixture
) -> None:
    """Not of one that is stored, and not of one that is refused because it is too large."""
    caplog.set_level(logging.DEBUG, "monque")
    secret = {"is": marker("step")}

    @monque.worker("payroll", max_attempts=1)
    async def payroll(job: Job[None]) -> None:
        assert await job.step("pay", lambda: secret) == secret
        await job.receive("pin")
        with pytest.raises(StepError):
            await job.step("large", lambda: marker("step") * 20_000)
        await job.receive("end")

    job = await monque.enqueue(payroll)
    await monque.start()
    await monque.signal(job, "pin", marker("signal"))
    with pytest.raises(JobStateError):
        await monque.signal(job, "pin", marker("signal") * 20_000)
    await monque.signal(job, "end", marker("signal"))
    ended = await monque.wait_for(job, timeout=timedelta(seconds=20))

    assert (ended.status, [step.name for step in ended.steps]) == ("completed", ["pay", "pin", "end"])
    assert MARKER not in caplog.text
