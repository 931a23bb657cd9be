"""`monque doctor` and `monque indexes`: each trouble is named, with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pymongo.collection import Collection

from monque import Diagnosis, DueJobs, IndexView, Options, Retention, UseView, Workers
from monque.cli.commands import monque as command
from monque.cli.doctor import children, findings
from monque.sync import SyncMonque
from support import in_child
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.servers import Servers
from support.waits import receiving

Call = Callable[..., Result]
Jobs = Collection[dict[str, Any]]

CHECKS = [
    *("server", "replica set", "change streams", "transactions", "clock"),
    *("indexes", "superfluous indexes", "uses", "paused names", "schedules", "jobs without a worker"),
    *("stale jobs", "stuck jobs", "waits without an end", "expired jobs", "lost calls", "oldest due job"),
    *("finished jobs", "child processes"),
]


@pytest.fixture
def opened(uri: str) -> Iterator[None]:
    """A collection as a worker leaves it, with its indexes."""
    with SyncMonque(uri):
        yield


def checks(told: Result) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    return {line["check"]: line for line in lines}


def use(*, days: int | None = None) -> UseView:
    """A use whose newest job is so many days old, in 2030."""
    last = None if days is None else datetime(2030, 1, 1, tzinfo=UTC) - timedelta(days=days)
    return UseView(name="priority", index="monque_urgent", reason="finds them", last_job_at=last)


def test_a_healthy_deployment_is_ok_in_every_line(call: Call, opened: None, jobs: Jobs) -> None:
    told = call("doctor", "--strict", "--json")

    assert told.exit_code == 0
    assert {check: line["level"] for check, line in checks(told).items()} == dict.fromkeys(CHECKS, "ok")
    assert all(set(line) == {"check", "level", "message", "advice"} for line in checks(told).values())
    version = jobs.database.client.server_info()["version"]
    assert checks(told)["server"]["message"] == f"MongoDB {version}"


def test_plain_text_has_a_line_for_each_check(call: Call, opened: None) -> None:
    lines = call("doctor").stdout.splitlines()

    assert [line[9:].partition(":")[0] for line in lines] == CHECKS
    assert {line.split()[0] for line in lines} == {"ok"}


def test_a_database_without_any_jobs_is_no_trouble(call: Call) -> None:
    told = call("doctor", "--strict", "--json")

    assert told.exit_code == 0
    assert "not there yet" in checks(told)["indexes"]["message"]


def test_a_missing_index_is_named_and_can_be_created(call: Call, opened: None, jobs: Jobs) -> None:
    jobs.drop_index("monque_active")

    told = call("doctor")
    assert told.exit_code == 1
    assert "error    indexes:               missing: monque_active\n" in told.stdout
    assert "-> create them with: monque indexes --create\n" in told.stdout

    assert "monque_active       needed" in call("indexes", "--create").stdout
    assert call("doctor").exit_code == 0


def test_an_index_of_that_name_with_other_keys_is_named(call: Call, opened: None, jobs: Jobs) -> None:
    jobs.drop_index("monque_active")
    jobs.create_index("status", name="monque_active")

    told = call("doctor", "--json")
    assert told.exit_code == 1
    assert checks(told)["indexes"]["message"].startswith("monque_active has other keys or options")


def test_superfluous_indexes_are_named(call: Call, opened: None, jobs: Jobs) -> None:
    jobs.create_index("data.customer", name="mine")

    told = call("doctor", "--json")
    assert told.exit_code == 0
    assert checks(told)["superfluous indexes"]["level"] == "warning"
    assert checks(told)["superfluous indexes"]["message"] == "mine"
    assert call("doctor", "--strict").exit_code == 1


def test_a_stale_job_is_named_with_its_owner(call: Call, opened: None, jobs: Jobs) -> None:
    stale = claimed("dead-instance", name="render", lastHeartbeat=ago(minutes=5), lockedAt=ago(minutes=5))
    jobs.insert_many([stale, claimed("alive")])

    told = call("doctor", "--json")
    assert told.exit_code == 1
    assert checks(told)["stale jobs"]["level"] == "error"
    assert checks(told)["stale jobs"]["message"] == f"render {stale['_id']} of dead-instance"
    assert "start one" in checks(told)["stale jobs"]["advice"]


def test_jobs_that_nobody_takes_are_named(call: Call, opened: None, jobs: Jobs) -> None:
    """Others wait as long, but some of their name are running."""
    jobs.insert_many(
        [
            *(document(name="orphan", nextRunAt=ago(minutes=10)) for _ in range(3)),
            *(document(name="busy", nextRunAt=ago(minutes=2)), claimed("alive", name="busy")),
            *(document(name="later", nextRunAt=ahead(hours=1)), document(name="young")),
        ]
    )

    found = checks(call("doctor", "--json"))
    alone = found["jobs without a worker"]
    assert alone["level"] == "warning"
    assert alone["message"].startswith("orphan: 3 due, the oldest for 10m")
    assert "busy" not in alone["message"]
    assert found["oldest due job"]["level"] == "warning"
    assert found["oldest due job"]["message"].startswith("orphan: 3 due, the oldest for 10m")


def test_a_server_that_stands_alone_is_named() -> None:
    with Servers(replica_set=False) as standalone:
        told = CliRunner().invoke(command, ["doctor", "--json", "--uri", standalone.uri("shop")])

    assert told.exit_code == 0
    for check in ("replica set", "change streams", "transactions"):
        assert checks(told)[check]["level"] == "warning"
        assert "replica set" in checks(told)[check]["advice"]
    assert checks(told)["replica set"]["message"] == "this server stands alone"


def test_expired_and_stuck_jobs_and_lost_calls_are_found(call: Call, opened: None, jobs: Jobs) -> None:
    asked = {"at": ago(minutes=5), "by": "operator"}
    mark = {"why": "timeout", "since": ago(minutes=5), "by": "me", "attempt": 1}
    jobs.insert_many(
        [
            document(policy={"expiresAt": ago(seconds=1)}),
            document(policy={"expiresAt": ahead(hours=1)}, nextRunAt=ahead(hours=1)),
            stuck := claimed("me", name="render", cancel=asked, updatedAt=ago(minutes=1)),
            claimed("me", name="fresh", cancel={**asked, "at": ago(seconds=1)}),
            late := claimed("me", name="late", stuck=mark),
            claimed("me", name="later claim", stuck={**mark, "attempt": 0}),
            claimed("typescript", name="other owner", stuck=mark),
            document(name="ended", status="failed", stuck=mark),
            document(status="completed", uniqueKey="k", again={"data": 1}),
        ]
    )
    found = checks(call("doctor", "--json"))

    assert (found["expired jobs"]["level"], found["expired jobs"]["message"][:6]) == ("warning", "1 wait")
    assert found["expired jobs"]["advice"].endswith("with: monque jobs cancel --expired")
    assert found["stuck jobs"]["level"] == "warning"
    assert found["lost calls"]["message"] == "1 ended job(s) should have run once more for a later call"
    assert found["stuck jobs"]["message"] == f"render {stuck['_id']} of me, late {late['_id']} of me"


def test_waits_without_an_end_are_found_after_thirty_days(call: Call, opened: None, jobs: Jobs) -> None:
    long = {"why": "signal", "key": "picked-up", "since": ago(days=31)}
    jobs.insert_many(
        [
            found := receiving(parked=long),
            receiving(parked={**long, "since": ago(days=29)}),
            receiving(ahead(days=1), parked=long),
        ]
    )
    told = checks(call("doctor", "--json"))["waits without an end"]

    assert (told["level"], told["message"]) == ("warning", f"work {found['_id']}")


@pytest.mark.parametrize(
    ("changes", "check", "level", "part"),
    [
        ({"clock_offset": timedelta(hours=1)}, "clock", "warning", "1h ahead of"),
        ({"clock_offset": timedelta(seconds=-70)}, "clock", "warning", "1m 10s behind"),
        ({"clock_offset": timedelta(seconds=1)}, "clock", "ok", "1.0s ahead of"),
        ({"replica_set": None}, "replica set", "ok", "sharded"),
        ({"change_streams": False}, "change streams", "warning", "polling"),
        ({"indexes": []}, "indexes", "ok", "not there yet"),
        ({"uses": [use(days=3)]}, "uses", "ok", "priority (monque_urgent)"),
        ({"uses": [use(days=31)]}, "uses", "warning", "without a job for 30 days"),
        ({"uses": [use(days=3), use()]}, "uses", "warning", "priority (monque_urgent), without a job"),
        ({"finished": 5}, "finished jobs", "ok", "5, kept for ever: no Retention removes them"),
        ({"finished": 200_000}, "finished jobs", "warning", "200,000, kept for ever"),
        ({"finished": 200_000, "retention": True}, "finished jobs", "ok", "200,000, removed in their time"),
    ],
)
def test_what_cannot_be_arranged_here_is_judged_too(
    changes: dict[str, Any], check: str, level: str, part: str
) -> None:
    taken_at = datetime(2030, 1, 1, tzinfo=UTC)
    healthy: dict[str, Any] = {
        "taken_at": taken_at,
        "server_version": "7.0.5",
        "replica_set": "rs0",
        "change_streams": True,
        "transactions": True,
        "clock_offset": timedelta(0),
        "indexes": [IndexView(name="_id_", keys=("_id",), state="needed")],
        "stale": [],
        "due": [DueJobs(name="mail", count=1, oldest=taken_at, running=0)],
    }
    found = {finding.check: finding for finding in findings(Diagnosis(**{**healthy, **changes}))}

    assert [*found, "child processes"] == CHECKS
    assert found[check].level == level
    assert part in found[check].message
    assert (found[check].advice is None) == (level == "ok")


def test_finished_jobs_and_whether_somebody_removes_them_are_found_out(
    call: Call, uri: str, jobs: Jobs
) -> None:
    jobs.insert_many([document(status=status) for status in ("completed", "failed", "cancelled", "pending")])
    assert checks(call("doctor", "--json"))["finished jobs"]["message"].startswith("3, kept for ever")

    with SyncMonque(uri, options=Options(retention=Retention(completed=timedelta(days=1)))):
        pass
    told = checks(call("doctor", "--json"))["finished jobs"]["message"]
    assert told == "3, removed in their time by a Retention"


def test_an_unreachable_server_is_a_finding(start: Callable[..., Any]) -> None:
    doctor = start("doctor", "--uri", "mongodb://127.0.0.1:1/shop?serverSelectionTimeoutMS=200")

    assert doctor.ends() == 1
    assert doctor.text.startswith(
        "error    server:                could not open the database: no MongoDB at "
    )
    assert "127.0.0.1:1 (connection refused)" in doctor.text
    assert "-> check the address, the credentials and the network" in doctor.text


def test_indexes_are_listed_with_their_state(call: Call, opened: None, jobs: Jobs) -> None:
    jobs.create_index("data.customer", name="mine")
    found = [json.loads(line) for line in call("indexes", "--listing", "--json").stdout.splitlines()]

    assert {index["name"]: index["state"] for index in found} == {
        "_id_": "needed",
        "monque_active": "needed",
        "name_1_uniqueKey_1": "needed",
        "mine": "superfluous",
        **dict.fromkeys(("createdAt_-1__id_-1", "updatedAt_-1__id_-1", "nextRunAt_-1__id_-1"), "missing"),
        "name_1_status_1": "missing",
    }
    assert found[0]["keys"] == ["_id"]


def test_the_optional_indexes_are_created_on_demand(call: Call, opened: None, jobs: Jobs) -> None:
    call("indexes", "--create", "--retention")

    states = [json.loads(line) for line in call("indexes", "--json").stdout.splitlines()]
    assert ("monque_finished", "optional") in [(index["name"], index["state"]) for index in states]
    assert "createdAt_-1__id_-1" not in jobs.index_information()


def test_the_index_of_a_use_is_created_ahead_of_the_first_job(call: Call, opened: None, jobs: Jobs) -> None:
    assert "monque_urgent       missing" in call("indexes", "--for", "priority").stdout
    assert "monque_urgent" not in jobs.index_information()

    assert "monque_urgent       needed" in call("indexes", "--create", "--for", "priority").stdout

    assert "monque_urgent       needed" in call("indexes").stdout
    assert "priority (monque_urgent)" in checks(call("doctor", "--json"))["uses"]["message"]
    assert "'priority', 'window'" in call("indexes", "--for", "speed").output


def test_a_pause_without_an_end_is_worth_a_warning(call: Call, opened: None, uri: str) -> None:
    with SyncMonque(uri) as monque:
        monque.pause("mail", reason="the bank is down")
        monque.pause("render", until=timedelta(hours=1))
    told = call("doctor", "--json")

    found = checks(told)["paused names"]
    assert (told.exit_code, found["level"]) == (0, "warning")
    assert "mail for " in found["message"]
    assert "(the bank is down)" in found["message"]
    assert "monque resume" in found["advice"]


def test_a_planned_pause_is_none_and_its_jobs_are_not_missed(
    call: Call, opened: None, uri: str, jobs: Jobs
) -> None:
    jobs.insert_many([document(name=name, nextRunAt=ago(minutes=30)) for name in ("mail", "render")])
    with SyncMonque(uri) as monque:
        monque.pause("mail", until=timedelta(hours=1))
        found = checks(call("doctor", "--json"))
        assert (found["paused names"]["level"], found["paused names"]["advice"]) == ("ok", None)
        assert "mail" not in found["jobs without a worker"]["message"]
        assert "render" in found["jobs without a worker"]["message"]
        monque.pause(until=timedelta(hours=1))

    found = checks(call("doctor", "--json"))
    assert found["jobs without a worker"]["level"] == "ok"
    assert found["oldest due job"]["message"] == "none is waiting"


@pytest.mark.parametrize(
    ("processes", "each", "level"), [(1, None, "ok"), (2, 2, "ok"), (2, None, "warning"), (4, 2, "warning")]
)
def test_more_children_than_cores_are_a_warning(processes: int, each: int | None, level: str) -> None:
    workers = Workers()
    workers.worker("square", in_child.square, mode="process")

    found = children(workers, Options(child_processes=each), processes, cores=4)

    assert found.level == level
    assert (f"--child-processes {4 // processes}" in (found.advice or "")) == (level == "warning")


def test_without_handlers_in_children_their_number_does_not_matter() -> None:
    assert children(Workers(), Options(child_processes=100), 8, cores=1).level == "ok"
