"""Instances, numbers over time, the overview, queues, the search and who is asking."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from monque import Job, Monque, Trends
from monque._views.text import iso
from monque.web import search
from monque.web.access.permissions import Action
from monque.web.audit import OpsAuditQuery
from monque.web.errors import BadRequestError, ForbiddenError, NotFoundError, NotOfferedError
from monque.web.explain import OpsNameQuery
from monque.web.instances import OpsInstanceQuery
from monque.web.overview import OpsOverviewQuery
from monque.web.queues import OpsPauseBody, OpsQueueQuery, OpsResumeBody
from monque.web.search import OpsSearchQuery
from monque.web.trends import OpsLatencyQuery, OpsTrendsQuery
from support.aliases import Collection, Make
from support.callers import caller
from support.calls import Calls
from support.clocks import ago
from support.jobs import claimed, document
from support.options import QUICK
from support.waiting import eventually

SOON = Trends(interval=timedelta(milliseconds=200))
KEEPING = replace(QUICK, trends=SOON, register=True, release="4f2a", instance_id="web-1")


@pytest.fixture
async def busy(make_monque: Make) -> Monque:
    """An instance that is in the register, and has run some jobs."""
    monque = make_monque(options=KEEPING, companions=True)

    @monque.worker("work", concurrency=3)
    async def work(job: Job[int]) -> None:
        if job.data:
            raise ValueError(f"bad {job.data}")

    await monque.start()
    for number in (0, 0, 1):
        await monque.enqueue("work", number, max_attempts=1)
    return monque


async def counted(monque: Monque) -> None:
    """All have run, and the numbers are stored: a stop gives that a second only."""
    assert sum(point.ended for point in await monque.trends()) == 3


@pytest.fixture
async def looking(busy: Monque) -> Any:
    await eventually(lambda: counted(busy))
    await busy.stop()
    await busy.begin_use("failures")
    call = Calls(busy)
    yield call
    await call.close()


async def test_trends_and_latency_have_rows_percentiles_and_marks(looking: Calls) -> None:
    series = (await looking("opsTrends", caller(), query=OpsTrendsQuery())).dump()
    latency = (await looking("opsLatency", caller(), query=OpsLatencyQuery(name="work"))).dump()

    columns = series["columns"]
    assert columns[:6] == ["at", "completed", "retried", "failed", "cancelled", "snoozed"]
    totals = {name: sum(row[columns.index(name)] for row in series["rows"]) for name in columns[1:6]}
    assert totals == {"completed": 2, "retried": 0, "failed": 1, "cancelled": 0, "snoozed": 0}
    assert [mark["release"] for mark in series["marks"]] == ["4f2a"]
    assert (series["stepMs"], series["partial"]) == (60_000, True)
    run = latency["run"]
    assert (run["percentiles"]["count"], latency["wait"]["percentiles"]["count"]) == (3, 3)
    assert len(run["matrix"]) == len(run["buckets"])
    assert all(len(row) == len(latency["times"]) for row in run["matrix"])
    assert sum(map(sum, run["matrix"])) == 3
    assert len(run["lines"]) == len(latency["times"])


async def test_no_share_of_the_runs_of_a_name_took_longer_than_the_longest(
    make_monque: Make, collection: Collection
) -> None:
    """All runs fall into the bucket from 3.98 to 6.31 s, whose durations are taken as evenly spread."""
    monque = await make_monque(options=KEEPING, companions=True).open()
    minute = ago(minutes=5).replace(second=0)
    counts = {"completed": 100, "ranMs": 410_000, "ran": {"19": 100}, "waited": {"5": 100}}
    key = {"r": "m", "t": minute, "n": "work"}
    await collection.database[f"{collection.name}_trends"].insert_one({"_id": key, **counts})
    ended = minute + timedelta(seconds=30)
    started = ended - timedelta(seconds=4.2)
    await collection.insert_one(
        document(
            name="work", status="completed", attempt=1, startedAt=started, finishedAt=ended, updatedAt=ended
        )
    )
    call = Calls(monque)

    [kind] = (await call("opsLatencyKinds", caller(), query=OpsLatencyQuery())).kinds
    await call.close()

    assert (kind.percentiles.count, kind.longest_ms) == (100, 4200)
    assert kind.percentiles.p99_ms == kind.percentiles.p50_ms == 4200


async def test_the_minute_that_has_just_begun_is_in_every_answer(
    make_monque: Make, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's clock shows the first second of a minute, in which something has ended already."""
    monque = await make_monque(options=KEEPING, companions=True).open()
    minute = ago(minutes=2).replace(second=0)
    monkeypatch.setattr(monque, "server_time", lambda: minute + timedelta(milliseconds=400))
    counts = {"completed": 1, "ran": {"6": 1}, "waited": {"6": 1}}
    key = {"r": "m", "t": minute, "n": "work"}
    await collection.database[f"{collection.name}_trends"].insert_one({"_id": key, **counts})
    await collection.insert_one(document(name="work"))
    call = Calls(monque)

    trends = await call("opsTrends", caller(), query=OpsTrendsQuery())
    latency = await call("opsLatency", caller(), query=OpsLatencyQuery())
    queue = await call("opsQueue", caller(), query=OpsQueueQuery(name="work"))
    overview = await call("opsOverview", caller(), query=OpsOverviewQuery())
    await call.close()

    newest = iso(minute)
    for series in (trends, queue.series, overview.series):
        assert series.rows[-1][:2] == [newest, 1]
        assert series.partial
    assert (latency.times[-1], latency.run.percentiles.count, queue.run.count) == (newest, 1, 1)


async def test_a_minute_that_ends_while_it_is_read_is_not_whole(
    make_monque: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The minute is read, then it ends: what ended in it in between is not among the numbers."""
    monque = await make_monque(options=KEEPING, companions=True).open()
    times = [ago(minutes=2).replace(second=59, microsecond=900_000)]
    monkeypatch.setattr(monque, "server_time", lambda: times[-1])
    read = monque.trends

    async def trends(**how: Any) -> Any:
        points = await read(**how)
        times.append(times[0] + timedelta(milliseconds=200))
        return points

    monkeypatch.setattr(monque, "trends", trends)
    call = Calls(monque)
    series = await call("opsTrends", caller(), query=OpsTrendsQuery())
    await call.close()

    assert len(times) == 2
    assert series.partial


async def test_a_series_ends_before_the_minute_that_begins_at_its_end(looking: Calls) -> None:
    end = ago(minutes=5).replace(second=0)
    series = await looking("opsTrends", caller(), query=OpsTrendsQuery.model_validate({"to": iso(end)}))
    assert series.rows[-1][0] == iso(end - timedelta(minutes=1))


async def test_wrong_times_are_refused(looking: Calls) -> None:
    for query in (
        {"from": "2026-05-01T00:00:00.000Z", "to": "2026-05-01T00:00:00.000Z"},
        {"from": "2020-01-01T00:00:00.000Z", "step": 60_000},
        {"to": "0001-01-01T00:00:00.000Z"},
        {"to": "9999-12-31T23:59:59.999Z"},
    ):
        with pytest.raises(BadRequestError):
            await looking("opsTrends", caller(), query=OpsTrendsQuery.model_validate(query))


async def test_where_nobody_keeps_numbers_there_are_none(call: Calls) -> None:
    with pytest.raises(NotOfferedError):
        await call("opsTrends", caller(), query=OpsTrendsQuery())
    with pytest.raises(NotOfferedError):
        await call("opsLatency", caller(), query=OpsLatencyQuery())
    assert (await call("opsMe", caller())).offers["trends"] is False


async def test_the_overview_has_everything_in_one_answer(looking: Calls, collection: Collection) -> None:
    await collection.insert_one(claimed("web-9", name="slow"))

    shown = json.loads(json.dumps((await looking("opsOverview", caller(), query=OpsOverviewQuery())).dump()))

    assert shown["snapshot"]["columns"][0] == "name"
    assert shown["groups"][0]["type"] == "ValueError"
    assert [job["name"] for job in shown["running"]] == ["slow"]
    assert {problem["level"] for problem in shown["problems"]} <= {"warning", "error"}
    assert shown["series"]["rows"]


async def test_a_queue_has_counts_numbers_servers_and_schedules(looking: Calls) -> None:
    await looking.monque.schedule("@daily", "work", 0)

    row = (await looking("opsQueues", caller())).dump()
    shown = (await looking("opsQueue", caller(), query=OpsQueueQuery(name="work"))).dump()

    assert [queue["name"] for queue in row["queues"]] == ["work"]
    assert (shown["stored"]["completed"], shown["stored"]["failed"]) == (2, 1)
    assert shown["stored"]["countedAt"] <= shown["serverTime"]
    assert (shown["run"]["count"], shown["wait"]["count"]) == (3, 3)
    assert [schedule["name"] for schedule in shown["schedules"]] == ["work"]
    with pytest.raises(NotFoundError):
        await looking("opsQueue", caller(), query=OpsQueueQuery(name="nobody"))


async def test_a_queue_that_waits_says_why(call: Calls, collection: Collection) -> None:
    await collection.insert_one(document(name="a/b.%?"))

    shown = (await call("opsQueue", caller(), query=OpsQueueQuery(name="a/b.%?"))).dump()
    why = (await call("opsQueueExplanation", caller(), query=OpsNameQuery(name="a/b.%?"))).dump()
    idle = await call("opsQueueExplanation", caller(), query=OpsNameQuery(name="other"))

    assert shown["explanation"]["code"] == why["code"] == "no-instance"
    assert idle.code == "nothing-due"


async def test_a_job_says_why_and_hides_texts_from_those_who_may_not_see_them(
    looking: Calls, collection: Collection
) -> None:
    failed = await collection.find_one({"status": "failed"})
    assert failed is not None
    twin = document(status="failed", failReason="ValueError: bad 77", uniqueKey="marker")
    await collection.insert_one(twin)

    why = (await looking("opsExplanation", caller(), id=str(failed["_id"]))).dump()
    blind = (await looking("opsExplanation", caller(Action.READ), id=str(failed["_id"]))).dump()

    assert (why["code"], why["certainty"]) == ("given-up", "certain")
    group = {"label": "its group of failures", "value": "1 more, of all job names"}
    assert group.items() <= why["evidence"][-1].items()
    assert any(remedy.get("action") == "retry" for remedy in why["remedies"])
    assert why["remedies"][-1]["href"].startswith("failures/")
    assert "bad 1" not in json.dumps(blind)


async def test_instances_are_joined_with_their_claims(busy: Monque, collection: Collection) -> None:
    await eventually(lambda: counted(busy))
    await collection.insert_many(
        [
            claimed("web-1", name="long", claimedAt=ago(minutes=5)),
            claimed("ts-1", name="theirs"),
            claimed("dead", name="lost", lastHeartbeat=ago(hours=1)),
        ]
    )
    call = Calls(busy)

    shown = {each["id"]: each for each in (await call("opsInstances", caller())).dump()["instances"]}
    one = (await call("opsInstance", caller(), query=OpsInstanceQuery(id="web-1"))).dump()
    running = (await call("opsRunning", caller())).dump()
    with pytest.raises(NotFoundError):
        await call("opsInstance", caller(), query=OpsInstanceQuery(id="web-2"))
    await call.close()
    await collection.delete_many({"status": "processing"})

    assert (shown["web-1"]["release"], shown["web-1"]["alive"], shown["web-1"]["reported"]) == (
        "4f2a",
        True,
        True,
    )
    [job] = shown["web-1"]["running"]
    assert (job["name"], job["exact"], job["sinceMs"] >= 300_000) == ("long", True, True)
    assert shown["web-1"]["workers"][0] == {"name": "work", "concurrency": 3, "active": 0, "off": False}
    beats = busy.options.heartbeat_interval // timedelta(milliseconds=1)
    assert shown["web-1"]["settings"]["heartbeatIntervalMs"] == beats
    assert (shown["ts-1"]["reported"], shown["ts-1"]["alive"], shown["dead"]["alive"]) == (False, True, False)
    assert shown["ts-1"]["running"][0]["exact"] is False
    assert (one["id"], one["host"]) == ("web-1", shown["web-1"]["host"])
    assert running["jobs"][0]["name"] == "long"
    assert running["capped"] is False


async def test_pausing_a_name_is_seen_at_once(call: Calls, monque: Monque) -> None:
    paused = await call("opsPause", caller(), body=OpsPauseBody(name="a/b", note="the bank is down"))
    everything = await call("opsPause", caller(), body=OpsPauseBody(name=None))
    queues = (await call("opsQueues", caller())).dump()

    assert (paused.name, paused.reason, everything.name) == ("a/b", "the bank is down", None)
    assert (paused.by, everything.by) == ("ada", "ada")
    assert [each["name"] for each in queues["pauses"]] == [None, "a/b"]
    assert (await call("opsResume", caller(), body=OpsResumeBody(name="a/b"))).resumed is True
    assert (await call("opsResume", caller(), body=OpsResumeBody(name="a/b"))).resumed is False
    with pytest.raises(ForbiddenError):
        await call("opsPause", caller(Action.READ), body=OpsPauseBody(name="a/b"))
    page = await call("opsAudit", caller(), query=OpsAuditQuery())
    assert [entry.action for entry in page.entries] == ["pause", "resume", "resume", "pause", "pause"]


async def test_an_instance_is_found_as_soon_as_it_is_in_the_register(
    busy: Monque, make_monque: Make, collection: Collection
) -> None:
    """Somebody looks, another instance starts or claims, and its page is opened: the kept answer lacks it."""
    call = Calls(busy)
    await call("opsInstances", caller())
    await make_monque(options=replace(KEEPING, instance_id="web-2"), companions=True).start()
    await eventually(lambda: registered(busy, "web-2"))
    await collection.insert_one(claimed("ts-1", name="theirs"))

    started = (await call("opsInstance", caller(), query=OpsInstanceQuery(id="web-2"))).dump()
    claiming = (await call("opsInstance", caller(), query=OpsInstanceQuery(id="ts-1"))).dump()
    await call.close()
    await collection.delete_many({"status": "processing"})

    assert (started["reported"], claiming["reported"]) == (True, False)


async def registered(monque: Monque, instance_id: str) -> None:
    assert instance_id in {each.id for each in await monque.instances()}


async def test_the_search_finds_ids_names_schedules_instances_and_keys(
    looking: Calls, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_BUDGET", 60)  # what is late is left out, and a busy machine is late
    job = document(name="send-email", uniqueKey="customer-7")
    await collection.insert_one(job)
    await looking.monque.schedule("@daily", "resend")
    await looking.monque.schedule("@daily", "clean", unique_key="a")
    await looking.monque.schedule("@daily", "clean", unique_key="b")

    async def found(text: str, who: Any = None) -> dict[str, Any]:
        return (await looking("opsSearch", who or caller(), query=OpsSearchQuery(q=text))).dump()

    names = await found("SEND")
    assert [each["label"] for each in names["names"]] == ["send-email", "resend"]
    assert [each["name"] for each in names["schedules"]] == ["resend"]
    assert [each["id"] for each in (await found(str(job["_id"])))["jobs"]] == [str(job["_id"])]
    assert [each["id"] for each in (await found("customer-7"))["jobs"]] == [str(job["_id"])]
    assert (await found("customer-7", caller(Action.READ)))["jobs"] == []
    blind = (await found("clean", caller(Action.READ)))["schedules"]
    assert [each["label"] for each in blind] == ["clean", "clean"]
    assert [each["id"] for each in (await found("web"))["instances"]] == ["web-1"]


async def test_what_a_search_was_too_early_for_the_next_one_finds(
    looking: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the names takes longer than a search may wait. It goes on, or no search would ever find one."""
    may_end, ended, depths = asyncio.Event(), asyncio.Event(), looking.monque.queue_depths

    async def slow(**more: Any) -> Any:
        await may_end.wait()
        ended.set()
        return await depths(**more)

    monkeypatch.setattr(looking.monque, "queue_depths", slow)
    early = await looking("opsSearch", caller(), query=OpsSearchQuery(q="work"))
    assert (early.names, early.partial) == ([], True)
    may_end.set()
    await asyncio.wait_for(ended.wait(), 60)

    monkeypatch.setattr(search, "_BUDGET", 60)
    later = await looking("opsSearch", caller(), query=OpsSearchQuery(q="work"))
    assert [each.label for each in later.names] == ["work"]


async def test_me_says_who_what_and_which(looking: Calls, make_call: Any) -> None:
    shown = (await looking("opsMe", caller(Action.READ, Action.RETRY))).dump()
    other = (
        await make_call(title="Shop", badge="test", links={"trace": "https://t.example/"})("opsMe", caller())
    ).dump()

    assert (shown["actor"]["name"], shown["actions"], shown["readOnly"]) == ("ada", ["read", "retry"], False)
    assert (shown["release"], shown["title"], "badge" in shown) == ("4f2a", "Monque", False)
    assert shown["offers"]["trends"] is shown["offers"]["register"] is shown["offers"]["failures"] is True
    assert (other["title"], other["badge"], other["links"]) == (
        "Shop",
        "test",
        {"trace": "https://t.example/"},
    )
    assert set(shown["offers"]) == {
        *("trends", "register", "audit", "failures", "attempts", "listingIndexes", "changeStreams"),
    }


async def test_the_doctor_speaks_as_data(call: Calls) -> None:
    shown = (await call("opsDoctor", caller())).dump()

    assert {"check", "level", "message"} <= shown["findings"][0].keys()
    assert "server" in [finding["check"] for finding in shown["findings"]]


async def test_every_look_needs_its_right(call: Calls) -> None:
    nobody = caller(Action.CANCEL)
    asks: list[Any] = [
        call("opsOverview", nobody, query=OpsOverviewQuery()),
        call("opsQueues", nobody),
        call("opsQueue", nobody, query=OpsQueueQuery(name="a")),
        call("opsQueueExplanation", nobody, query=OpsNameQuery(name="a")),
        call("opsInstances", nobody),
        call("opsInstance", nobody, query=OpsInstanceQuery(id="a")),
        call("opsRunning", nobody),
        call("opsTrends", nobody, query=OpsTrendsQuery()),
        call("opsLatency", nobody, query=OpsLatencyQuery()),
        call("opsSearch", nobody, query=OpsSearchQuery(q="a")),
        call("opsDoctor", nobody),
        call("opsAudit", caller(Action.READ), query=OpsAuditQuery()),
    ]
    for ask in asks:
        with pytest.raises(ForbiddenError):
            await ask


async def test_a_dead_instance_shows_what_it_ran_and_what_became_of_it(
    call: Calls, collection: Collection
) -> None:
    died = ago(minutes=5)
    register = collection.database[f"{collection.name}_instances"]
    await register.insert_one({"_id": "dead", "state": "running", "seenAt": died, "intervalMs": 1000})

    def lost(by: str = "dead", *more: Any, minutes: int = 3, **fields: Any) -> dict[str, Any]:
        entry = {"attempt": 1, "by": by, "outcome": "lost", "startedAt": died, "finishedAt": ago(minutes=4)}
        return document(
            **{"attempt": 2, **fields, "history": [entry, *more], "updatedAt": ago(minutes=minutes)}
        )

    failed = {
        "attempt": 2,
        "by": "web-3",
        "outcome": "failed",
        "error": "OSError",
        "finishedAt": ago(minutes=2),
    }
    jobs = {
        "running": lost(**claimed("web-2", name="running", claimedAt=ago(minutes=3)) | {"attempt": 2}),
        "completed": lost(name="completed", status="completed", finishedAt=ago(minutes=3)),
        "failed": lost("dead", failed, name="failed", status="failed"),
        "due": lost(name="due", attempt=1),
    }
    others = [lost("web-9"), lost(minutes=120), document(history=[{**failed, "by": "dead"}])]
    await collection.insert_many([*jobs.values(), *others])

    shown = (await call("opsInstanceLost", caller(), query=OpsInstanceQuery(id="dead"))).dump()

    assert shown["capped"] is False
    runs = {run["job"]["name"]: run for run in shown["runs"]}
    assert runs.keys() == jobs.keys()
    assert {run["number"] for run in runs.values()} == {1}
    told = {
        name: (run["next"]["outcome"], run["next"].get("instance"))
        for name, run in runs.items()
        if "next" in run
    }
    assert told == {
        "running": ("running", "web-2"),
        "completed": ("completed", None),
        "failed": ("failed", "web-3"),
    }
    with pytest.raises(NotFoundError):
        await call("opsInstanceLost", caller(), query=OpsInstanceQuery(id="nobody"))
