"""What people see: the command in a terminal."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

from pymongo.collection import Collection

from support.clocks import ago, ahead
from support.jobs import claimed, document

Start = Callable[..., Any]
Jobs = Collection[dict[str, Any]]

RED = "\x1b[31m"


def test_jobs_are_listed_in_colours_and_cut_at_the_edge(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="mail", status="failed", failReason="refused " * 50))
    listing = start("jobs", "list", terminal=True)

    assert listing.ends() == 0
    heading, row = listing.text.splitlines()
    assert heading.split() == ["id", "name", "status", "due", "failures", "reason"]
    assert len(row) <= 160
    assert row.rstrip().endswith("…")
    assert RED + "failed" in listing.raw


def test_colours_can_be_turned_off(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(status="failed"))
    listing = start("jobs", "list", terminal=True, NO_COLOR="1")

    assert listing.ends() == 0
    assert "[31m" not in listing.raw


def test_top_shows_what_happens_until_q_is_typed(start: Start, jobs: Jobs) -> None:
    running = claimed("somebody", name="render", lockedAt=ago(minutes=5), lastHeartbeat=ago(seconds=0))
    broken = document(name="mail", status="failed", failCount=10, failReason="SMTPError: refused")
    retried = document(name="sync", nextRunAt=ahead(hours=1), failCount=2, failReason="TimeoutError: late")
    jobs.insert_many([running, broken, retried, *(document(name="mail") for _ in range(7))])
    top = start("top", "--interval", "0.2", terminal=True)

    top.wait_for(r"mail +7 +0 +0 ")
    top.wait_for(rf"{running['_id']} +render +1 +≥ 5m \d+s +somebody")
    top.wait_for(rf"{broken['_id']} +mail +[\w.]+ ago +10 +SMTPError: refused")
    top.wait_for(rf"{retried['_id']} +sync +in 59m \d+s +2 +TimeoutError: late")
    jobs.insert_many(document(name="mail", nextRunAt=ahead(hours=1)) for _ in range(5))
    top.wait_for(r"mail +7 +5 +0 ")
    top.types("x")
    top.types("q")

    assert top.ends(within=20) == 0
    assert top.raw.startswith("\x1b[?1049h"), "it has a screen of its own"
    assert "\x1b[?1049l" in top.raw, "and gives it back"


def test_a_bulk_action_asks_in_the_terminal(start: Start, jobs: Jobs) -> None:
    jobs.insert_many(document(name="mail") for _ in range(3))
    cancel = start("jobs", "cancel", "--name", "mail", terminal=True)
    cancel.wait_for(r"Cancel 3 job\(s\) that are pending \(name mail\)\? \[y/N\]: ")
    cancel.types("y\n")

    assert cancel.ends() == 0
    assert cancel.text.endswith("cancelled 3 job(s)\n")
    assert jobs.count_documents({"status": "cancelled"}) == 3


def test_a_worker_in_a_terminal_tells_what_it_does_and_stops_gracefully(start: Start, jobs: Jobs) -> None:
    jobs.insert_one(document(name="say", data="hello"))
    worker = start("worker", "shop:monque", terminal=True)
    worker.wait_for(r"instance \S+ works on work \(50 at once\), .*say \(5 at once\)")
    worker.wait_for("said hello")
    worker.send(signal.SIGINT)

    assert worker.ends() == 0
    assert re.search(r"instance \S+ stopped after [\d.]+ s\n$", worker.text)


def test_draining_shows_how_far_it_is(start: Start, jobs: Jobs) -> None:
    jobs.insert_many(document(name="work", data=0.2) for _ in range(150))
    worker = start("worker", "shop:monque", "--until-idle", terminal=True)
    worker.wait_for(r"processing .*\d+/150")

    assert worker.ends() == 0
    assert jobs.count_documents({"status": "completed"}) == 150


def test_the_demo_is_the_show(start: Start) -> None:
    demo = start("demo", terminal=True)

    assert demo.ends(within=100) == 0
    assert re.search(r"✓ drained at [\d,]+ jobs a second", demo.text)
    assert "\x1b[32m✓" in demo.raw
    assert "Summary" in demo.text
