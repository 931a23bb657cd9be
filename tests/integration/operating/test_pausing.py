"""Pausing as an operator sees it: what is stored, listed, replaced and ended."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Code, Int64, ObjectId, Regex

from monque import ConfigurationError, InvalidJobIdentifierError, Monque, Pause, SyncMonque
from monque._store.pauses import ControlDocument
from monque.embedded import EmbeddedMongo
from support.aliases import Collection, Database, Make
from support.clocks import ago, ahead, now
from support.jobs import document
from support.programs.child import uri_of

HOUR = timedelta(hours=1)
ODD: list[Any] = [
    *(None, "", "text", 7, 1.5, float("nan"), True, b"\x00", {}, {"a": 1}, {"$gt": 1}, [], [1], [[]], [None]),
    *(
        ["work"],
        [{"name": ["work"]}],
        [{"name": {"$gt": 1}}],
        Int64(1),
        Regex("x"),
        Code("x"),
        ObjectId(b"twelve bytes"),
    ),
]


@pytest.fixture
def control(database: Database) -> Collection:
    """The collection of the control document, read and written directly."""
    return database["monque_jobs_control"]


async def names(monque: Monque) -> list[str | None]:
    return [pause.name for pause in await monque.paused()]


async def test_a_pause_says_what_is_paused_since_when_until_when_why_and_by_whom(monque: Monque) -> None:
    end = ahead(hours=1)
    before = monque.server_time()

    pause = await monque.pause("work", until=end, reason="the bank is down")

    assert (pause.name, pause.until, pause.reason) == ("work", end, "the bank is down")
    assert pause.by == monque.instance_id
    assert pause.since is not None
    assert before <= pause.since <= datetime.now(UTC)
    assert await monque.paused() == [pause]


async def test_a_duration_counts_from_now_by_the_clock_of_the_server(monque: Monque) -> None:
    pause = await monque.pause("work", until=HOUR)

    assert pause.since is not None
    assert pause.until == pause.since + HOUR


async def test_the_document_is_as_the_specification_says(monque: Monque, control: Collection) -> None:
    one = await monque.pause("work")
    every = await monque.pause(until=HOUR, reason="night")

    assert await control.find().to_list() == [
        {
            "_id": "settings",
            "paused": [{"name": "work", "since": one.since, "by": monque.instance_id}],
            "all": {"since": every.since, "until": every.until, "reason": "night", "by": monque.instance_id},
        }
    ]


async def test_who_pauses_nothing_has_no_second_collection(monque: Monque, database: Database) -> None:
    monque.worker("work", lambda job: None)
    await monque.enqueue("work")
    await monque.run_until_idle()
    await monque.queue_views()
    await monque.diagnose()

    assert await monque.paused() == []
    assert await monque.resume("work") is False
    assert await database.list_collection_names() == ["monque_jobs"]


async def test_names_may_hold_dots_and_dollars(monque: Monque) -> None:
    odd = ["a.b.c", "$name", "$$NOW", "name$", "."]
    for name in odd:
        await monque.pause(name)

    assert await names(monque) == sorted(odd)
    for name in odd:
        assert await monque.resume(name) is True
    assert await monque.paused() == []


async def test_a_reason_is_stored_as_it_is(monque: Monque) -> None:
    await monque.pause("a", reason="$name")
    await monque.pause(reason="$$ROOT \x00")

    assert [pause.reason for pause in await monque.paused()] == ["$$ROOT \x00", "$name"]


async def test_a_second_pause_replaces_the_first(monque: Monque) -> None:
    await monque.pause("work", until=HOUR, reason="first")
    await monque.pause(until=HOUR, reason="first")
    one = await monque.pause("work")
    every = await monque.pause()

    assert await monque.paused() == [every, one]
    assert [(pause.until, pause.reason) for pause in (every, one)] == [(None, None), (None, None)]


async def test_resuming_all_names_leaves_single_names_paused_and_the_other_way_round(monque: Monque) -> None:
    await monque.pause("work")
    await monque.pause()

    assert await names(monque) == [None, "work"]
    assert await monque.resume() is True
    assert await names(monque) == ["work"]
    await monque.pause()
    assert await monque.resume("work") is True
    assert await names(monque) == [None]
    assert await monque.resume("work") is False
    assert await names(monque) == [None]


async def test_a_pause_that_ended_in_the_past_pauses_nothing_and_ends_the_one_before(monque: Monque) -> None:
    monque.worker("work", lambda job: None)
    await monque.pause("work")
    over = await monque.pause("work", until=ago(seconds=1))
    await monque.pause(until=timedelta(0))

    assert over.until is not None
    assert over.until < now()
    assert await monque.paused() == []
    assert await monque.resume("work") is False
    job = await monque.enqueue("work")
    await monque.run_until_idle()
    after = await monque.get_job(job.id)
    assert after is not None
    assert after.status == "completed"


async def test_pauses_that_are_over_are_dropped_by_the_next_write(
    monque: Monque, control: Collection
) -> None:
    await monque.pause("a", until=ago(seconds=1))
    await monque.pause("b", until=HOUR)
    await monque.pause(until=ago(seconds=1))
    await monque.pause("c")

    [stored] = await control.find().to_list()
    assert [entry["name"] for entry in stored["paused"]] == ["b", "c"]
    assert "all" not in stored
    await monque.pause("b", until=ago(seconds=1))
    await monque.resume("c")
    assert (await control.find().to_list())[0]["paused"] == []


async def test_pauses_at_the_same_moment_do_not_undo_each_other(make_monque: Make) -> None:
    """Also the first ones of all, each of which would create the document."""
    instances = [await make_monque().open() for _ in range(3)]
    wanted = [f"name-{number:02}" for number in range(24)]

    await asyncio.gather(
        *(instances[number % 3].pause(name) for number, name in enumerate(wanted)), instances[0].pause()
    )

    assert await names(instances[0]) == [None, *wanted]


async def test_what_other_versions_have_set_is_kept(monque: Monque, control: Collection) -> None:
    await control.insert_one({"_id": "settings", "uses": ["priority"], "later": {"a": 1}})
    await monque.pause("work")
    await monque.pause()
    await monque.resume()

    [stored] = await control.find().to_list()
    assert (stored["uses"], stored["later"]) == (["priority"], {"a": 1})


@pytest.mark.parametrize("field", ["paused", "all"])
@pytest.mark.parametrize("value", ODD, ids=repr)
async def test_a_document_that_somebody_wrote_by_hand_can_be_read_and_written(
    monque: Monque, control: Collection, value: Any, field: str
) -> None:
    await control.insert_one({"_id": "settings", field: value})

    assert await names(monque) in ([], [None])
    await monque.pause("work")
    await monque.pause()
    assert await names(monque) == [None, "work"]
    assert await monque.resume("work") is True
    assert await monque.resume() is True
    assert await monque.paused() == []


async def test_a_pause_that_somebody_wrote_by_hand_can_be_ended(monque: Monque, control: Collection) -> None:
    await control.insert_one(
        {"_id": "settings", "paused": [{"name": "work", "until": "tomorrow"}], "all": {}}
    )

    assert await monque.paused() == [Pause(name=None, since=None), Pause(name="work", since=None)]
    assert await monque.resume("work") is True
    assert await monque.resume() is True
    assert await monque.paused() == []


async def test_the_views_say_which_pause_concerns_a_name(monque: Monque, collection: Collection) -> None:
    monque.worker("served", lambda job: None)
    await collection.insert_many([document(name="a"), document(name="b")])
    one = await monque.pause("a")
    assert {view.name: view.paused for view in await monque.queue_views()} == {
        "a": one,
        "b": None,
        "served": None,
    }
    every = await monque.pause()

    assert [view.paused for view in await monque.queue_views()] == [one, every, every]


async def test_the_diagnosis_lists_the_pauses_in_force(monque: Monque) -> None:
    pause = await monque.pause("work")
    await monque.pause("over", until=ago(seconds=1))
    diagnosis = await monque.diagnose()

    assert diagnosis.paused == [pause]
    assert diagnosis.is_paused("work")
    assert not diagnosis.is_paused("other")


@pytest.mark.parametrize("name", ["", "two words", 7, "x" * 256, "\ud800"], ids=repr)
async def test_what_cannot_be_a_name_is_refused(monque: Monque, name: Any) -> None:
    with pytest.raises(InvalidJobIdentifierError):
        await monque.pause(name)
    with pytest.raises(InvalidJobIdentifierError):
        await monque.resume(name)


@pytest.mark.parametrize("wrong", [{"until": "1h"}, {"until": -HOUR}, {"reason": 7}, {"reason": "x" * 1001}])
async def test_wrong_arguments_change_nothing(monque: Monque, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        await monque.pause("work", **wrong)

    assert await monque.paused() == []


def test_the_blocking_twins_do_the_same(database: Database, server: EmbeddedMongo) -> None:
    with SyncMonque(uri_of(server, database)) as monque:
        pause = monque.pause("work", until=HOUR, reason="why")

        assert monque.paused() == [pause]
        assert monque.resume("work") is True
        assert monque.paused() == []


# Of two ends the later counts: what `Snooze(..., whole_name=True)` asks for


async def extended(monque: Monque, until: Any, *, name: str = "work") -> Pause:
    control: ControlDocument = monque._opening.here().store.control
    settings = await control.pause_at_least(name, until=until, reason="busy", by="handler")
    return settings.pauses[name]


async def test_a_name_that_is_not_paused_is_paused(monque: Monque) -> None:
    await monque.pause("over", until=ago(seconds=1))
    for name in ("work", "over"):
        pause = await extended(monque, HOUR, name=name)

        assert pause.since is not None
        assert (pause.until, pause.reason, pause.by) == (pause.since + HOUR, "busy", "handler")
    assert await names(monque) == ["over", "work"]


async def test_of_two_ends_the_later_counts(monque: Monque) -> None:
    soon, late = ahead(minutes=1), ahead(hours=2)
    await extended(monque, soon)
    assert (await extended(monque, late)).until == late
    assert (await extended(monque, soon)).until == late
    assert (await extended(monque, HOUR)).until == late
    assert await names(monque) == ["work"]


async def test_the_pause_of_an_operator_without_an_end_or_with_a_later_one_stays(monque: Monque) -> None:
    endless = await monque.pause("a", reason="mine")
    later = await monque.pause("b", until=2 * HOUR, reason="mine")

    assert await extended(monque, HOUR, name="a") == endless
    assert await extended(monque, HOUR, name="b") == later


async def test_a_pause_of_all_names_does_not_shorten_it(monque: Monque) -> None:
    every = await monque.pause(until=timedelta(minutes=1))
    one = await extended(monque, HOUR)

    assert await monque.paused() == [every, one]
