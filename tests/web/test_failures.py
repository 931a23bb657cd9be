"""Failures by fingerprint on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monque._views.text import iso
from monque.web.access.permissions import Action
from monque.web.desk import Limits
from monque.web.errors import ForbiddenError, NotFoundError, NotOfferedError
from monque.web.failures import OpsFailuresQuery, OpsWindowQuery
from monque.web.groups import shape_of
from monque.web.jobs import OpsJobsQuery
from monque.web.serialization import OpsNoteBody
from support.aliases import Collection
from support.callers import caller
from support.calls import Calls
from support.clocks import ago
from support.jobs import document, find_one

BAD = shape_of("ValueError: bad 1").fingerprint


@pytest.fixture
async def failures(call: Calls, collection: Collection) -> list[dict[str, Any]]:
    """Three failures that look alike, one that does not, and one of last week."""
    await call.monque.begin_use("failures")
    jobs = [
        document(
            status="failed",
            failReason=f"ValueError: bad {each}",
            updatedAt=ago(minutes=each + 1),
            name="a" if each else "b",
            data={"same": 1, "other": each},
        )
        for each in range(3)
    ]
    jobs.append(document(status="failed", failReason="OSError: marker", updatedAt=ago(minutes=9)))
    jobs.append(document(status="failed", failReason="OSError: old", updatedAt=ago(days=3)))
    await collection.insert_many(jobs)
    return jobs


async def groups(call: Calls, who: Any = None, **query: Any) -> dict[str, Any]:
    return (await call("opsFailures", who or caller(), query=OpsFailuresQuery.model_validate(query))).dump()


@pytest.mark.usefixtures("failures")
async def test_failures_come_in_groups_the_largest_first(call: Calls) -> None:
    shown = await groups(call)

    first, second = shown["groups"]
    assert (shown["looked"], shown["capped"]) == (4, False)
    assert (first["fingerprint"], first["type"], first["count"], first["share"]) == (
        BAD,
        "ValueError",
        3,
        0.75,
    )
    assert (first["sentence"], first["names"]) == ("ValueError: bad …", ["a", "b"])
    assert (len(first["trend"]), sum(first["trend"]), len(first["sampleIds"])) == (24, 3, 3)
    assert (first["isNew"], second["count"]) == (False, 1)
    assert len((await groups(call, window="7d"))["groups"]) == 3
    assert [group["count"] for group in (await groups(call, name="b"))["groups"]] == [1]


@pytest.mark.usefixtures("failures")
async def test_without_a_begin_the_window_is_the_one_before_the_end(call: Calls) -> None:
    hour = await groups(call, to=iso(ago(days=2)), window="1h")
    week = await groups(call, to=iso(ago(days=2)), window="7d")

    assert hour["groups"] == []
    assert [group["sentence"] for group in week["groups"]] == ["OSError: old"]


@pytest.mark.usefixtures("failures")
async def test_only_the_newest_are_looked_at_and_it_says_so(make_call: Any) -> None:
    shown = await groups(make_call(limits=Limits(window=2)))

    assert (shown["looked"], shown["capped"]) == (2, True)
    assert (shown["groups"][0]["looked"], shown["groups"][0]["capped"]) == (2, True)


async def test_groups_beyond_the_most_are_counted(
    call: Calls, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monque.web.failures._MOST_GROUPS", 2)
    await call.monque.begin_use("failures")
    reasons = ["OSError: a", "OSError: a", "OSError: b", "OSError: c", "OSError: d"]
    await collection.insert_many([document(status="failed", failReason=each) for each in reasons])

    shown = await groups(call)

    assert [group["count"] for group in shown["groups"]] == [2, 1]
    assert (shown["looked"], shown["capped"]) == (5, True)
    assert (shown["otherGroups"], shown["inOtherGroups"]) == (2, 2)


@pytest.mark.usefixtures("failures")
async def test_one_group_has_samples_and_the_keys_in_which_they_differ(call: Calls) -> None:
    shown = (await call("opsFailure", caller(), id=BAD, query=OpsWindowQuery())).dump()

    assert (shown["count"], len(shown["samples"]), shown["differingKeys"]) == (3, 3, ["other"])
    with pytest.raises(NotFoundError):
        await call("opsFailure", caller(), id="0" * 12, query=OpsWindowQuery())


@pytest.mark.usefixtures("failures")
async def test_the_jobs_of_a_group_are_listed_by_pages(call: Calls) -> None:
    async def page(**query: Any) -> dict[str, Any]:
        asked = OpsJobsQuery.model_validate({"failed": BAD, "limit": 2, **query})
        return (await call("opsJobs", caller(), query=asked)).dump()

    first = await page()
    second = await page(cursor=first["nextCursor"])
    back = await page(cursor=second["previousCursor"], direction="backward")

    reasons = [job["failureReason"] for job in first["jobs"] + second["jobs"]]
    assert reasons == [f"ValueError: bad {each}" for each in range(3)]
    assert [job["id"] for job in back["jobs"]] == [job["id"] for job in first["jobs"]]
    assert (first["hasNext"], second["hasNext"]) == (True, False)
    assert len((await page(name="b"))["jobs"]) == 1


async def test_the_canary_retries_the_newest_and_says_how_many_are_left(
    call: Calls, collection: Collection, failures: list[dict[str, Any]]
) -> None:
    shown = await call("opsCanary", caller(), id=BAD, body=OpsNoteBody(note="try"))

    assert (shown.id, shown.status, shown.others) == (str(failures[0]["_id"]), "pending", 2)
    assert (await find_one(collection, {"_id": failures[1]["_id"]}))["status"] == "failed"
    with pytest.raises(ForbiddenError):
        await call("opsCanary", caller(Action.READ), id=BAD, body=OpsNoteBody())


@pytest.mark.usefixtures("failures")
async def test_without_the_right_payload_a_group_shows_its_type_alone(call: Calls) -> None:
    blind = caller(Action.READ)

    shown = await groups(call, blind)
    one = await call("opsFailure", blind, id=shown["groups"][1]["fingerprint"], query=OpsWindowQuery())

    assert [group["sentence"] for group in shown["groups"]] == ["ValueError", "OSError"]
    assert "marker" not in json.dumps([shown, one.dump()])


@pytest.mark.parametrize(
    ("history", "shown"), [({}, ""), ({"history": [{"attempt": 1, "error": "marker"}]}, "marker")]
)
async def test_a_word_before_a_colon_is_shown_without_the_right_payload_only_if_it_is_the_type(
    call: Calls, collection: Collection, history: dict[str, Any], shown: str
) -> None:
    """TypeScript stores the text of an error alone, which may begin with any word."""
    await call.monque.begin_use("failures")
    await collection.insert_one(document(status="failed", failReason="marker: is not a PIN", **history))

    [group] = (await groups(call, caller(Action.READ)))["groups"]

    assert (group["sentence"], group["type"]) == (shown or "•••", shown)


async def test_without_the_index_there_are_no_groups(call: Calls) -> None:
    with pytest.raises(NotOfferedError, match="monque indexes"):
        await groups(call)
