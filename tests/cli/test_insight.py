"""`monque instances` and `monque trends`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from click.testing import Result

from monque import Options, Trends
from monque.sync import SyncMonque

Call = Callable[..., Result]


@pytest.fixture
def worked(uri: str) -> Iterator[SyncMonque]:
    """An instance that has done three jobs of two names, and stopped."""
    trends = Trends(interval=timedelta(milliseconds=100))
    options = Options(trends=trends, instance_id="web-1", release="4f2a", max_retries=1)
    with SyncMonque(uri, options=options) as monque:
        monque.worker("mail", lambda job: None)
        monque.worker("report", lambda job: 1 // 0)
        for name in ("mail", "mail", "report"):
            monque.enqueue(name)
        monque.run_until_idle()
        yield monque


def test_instances_are_listed(call: Call, worked: SyncMonque) -> None:
    heading, line = call("instances").output.splitlines()
    assert heading.split()[:5] == ["instance", "host", "release", "version", "state"]
    assert line.startswith("web-1 ")
    assert line.endswith("mail, report")
    assert " 4f2a " in line
    assert " stopped " in line

    told = json.loads(call("instances", "--json").output)
    assert (told["id"], told["state"], told["alive"], told["interval"]) == ("web-1", "stopped", False, 30)
    assert told["workers"][0] == {"name": "mail", "concurrency": 5, "active": 0, "off": False}
    assert told["settings"]["poll_interval"] == 1.0


def test_trends_are_listed(call: Call, worked: SyncMonque) -> None:
    told = [json.loads(line) for line in call("trends", "--json").output.splitlines()]
    assert sum(point["completed"] for point in told) == 2
    assert sum(point["failed"] for point in told) == 1
    assert {point["step"] for point in told} == {60}
    assert sum(sum(point["ran"].values()) for point in told) == 3

    heading, *lines = call("trends", "--by-name", "--since", "10m", "--step", "1h").output.splitlines()
    assert heading.split()[:3] == ["time", "name", "completed"]
    assert {line.split()[1] for line in lines} == {"mail", "report"}
    assert "≈" in lines[0]
    named = call("trends", "--name", "mail", "--json", "--since", "2h", "--step", "1m").output
    assert sum(json.loads(line)["completed"] for line in named.splitlines()) == 2


def test_steps_without_anything_are_left_out_for_people(call: Call, worked: SyncMonque) -> None:
    heading, *lines = call("trends", "--since", "6h", "--step", "1m").output.splitlines()
    assert heading.split()[0] == "time"
    assert 1 <= len(lines) <= 3  # the jobs ran within two minutes, and what waits is counted once in each
    assert len(call("trends", "--since", "6h", "--step", "1m", "--json").output.splitlines()) >= 360


def test_nothing_is_listed_where_nothing_happened(call: Call) -> None:
    assert len(call("instances").output.splitlines()) == 1
    assert len(call("trends", "--by-name").output.splitlines()) == 1
    assert len(call("trends").output.splitlines()) == 1


def test_wrong_times_are_refused(call: Call) -> None:
    refused = call("trends", "--step", "90s")
    assert refused.exit_code == 2
    assert "whole minutes" in refused.output
    assert call("trends", "--since", "yesterday").exit_code == 2
