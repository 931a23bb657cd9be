"""Lines of the operations API: who sees which of them."""

from __future__ import annotations

from typing import Any

import pytest

from monque import Job
from monque.web.access.permissions import Action, Actor
from monque.web.access.redaction import Redaction
from monque.web.errors import ForbiddenError
from monque.web.explain import OpsNameQuery
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls
from support.waits import in_line, with_turn

KEY = "customer-7"


@pytest.fixture
async def line(collection: Collection) -> list[dict[str, Any]]:
    """One that runs, and two that wait behind it."""
    jobs = [with_turn(KEY), in_line(KEY), in_line(KEY)]
    await collection.insert_many(jobs)
    return jobs


async def whole(call: Calls, job: dict[str, Any], *may: Action) -> dict[str, Any]:
    shown: dict[str, Any] = (await call("opsJob", caller(*may), id=str(job["_id"]))).dump()
    return shown


async def test_the_lines_of_a_name_have_their_keys_for_those_who_see_payloads(
    call: Calls, line: list[dict[str, Any]]
) -> None:
    query = OpsNameQuery(name="work")

    seen = (await call("opsLines", caller(), query=query)).dump()
    hidden = (await call("opsLines", caller(Action.READ), query=query)).dump()

    [shown] = seen["lines"]
    assert (shown["key"], shown["running"], shown["waiting"], seen["name"]) == (KEY, 1, 2, "work")
    assert hidden["lines"] == [{name: value for name, value in shown.items() if name != "key"}]
    assert (await call("opsLines", caller(), query=OpsNameQuery(name="other"))).dump()["lines"] == []


async def test_the_key_of_a_line_is_shown_to_those_who_see_payloads_alone(
    call: Calls, line: list[dict[str, Any]]
) -> None:
    runs, _, waits = line

    turn, wait = (await whole(call, runs))["turn"], (await whole(call, waits))["waitsFor"]
    blind = [await whole(call, job, Action.READ) for job in line]
    why = (await call("opsExplanation", caller(), id=str(waits["_id"]))).dump()["sentence"]
    told = (await call("opsExplanation", caller(Action.READ), id=str(waits["_id"]))).dump()["sentence"]

    assert (turn, wait["why"], wait["line"]) == ({"line": KEY, "slot": 0}, "turn", KEY)
    assert why.endswith(f": 1 of {KEY} runs, 1 wait before it.")
    assert told.endswith(": 1 of its line runs, 1 wait before it.")
    assert KEY not in str([blind, told])
    assert [job["display"] for job in blind] == ["running", "waiting", "waiting"]


async def test_a_name_with_a_hook_shows_no_keys_of_lines(make_call: Any, line: list[dict[str, Any]]) -> None:
    """What the hook would leave of a key is not known."""
    call = make_call(redact=Redaction(by_name={"work": lambda job, data, actor: data}))

    [shown] = (await call("opsLines", caller(), query=OpsNameQuery(name="work"))).dump()["lines"]

    assert "key" not in shown


async def test_a_hook_is_asked_about_the_key_of_a_line_among_the_texts(
    make_call: Any, line: list[dict[str, Any]]
) -> None:
    def hides_the_customer(job: Job[Any], value: Any, actor: Actor) -> Any:
        return "" if isinstance(value, str) and KEY in value else value

    call = make_call(redact=Redaction(by_name={"work": hides_the_customer}))

    shown = [await whole(call, job) for job in line]

    assert KEY not in str(shown)


async def test_lines_need_the_right_to_read_the_name(call: Calls, line: list[dict[str, Any]]) -> None:
    with pytest.raises(ForbiddenError):
        await call("opsLines", caller(Action.PAYLOAD), query=OpsNameQuery(name="work"))
