"""Prometheus: the collector in a registry, and `monque worker --metrics-port`."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pymongo import MongoClient

from monque import Cancel, Job, JobStatus, Monque, NewJob, Snooze, SyncMonque
from monque._observe import otel
from monque._store.document import PARKED
from monque.embedded import EmbeddedMongo
from monque.prometheus import MonqueCollector
from support.aliases import Collection, Make
from support.clocks import ago, ahead
from support.jobs import claimed, document
from support.options import QUICK
from support.waiting import eventually

Jobs = Collection
Start = Callable[..., Any]
Samples = dict[tuple[str, tuple[str, ...]], float]

PORT = r"metrics are on port (\d+)"


def samples(text: str) -> Samples:
    """The exposition as Prometheus reads it: by name, and by the values of the labels, in order."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(port: int | str) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return samples(answer.read().decode())


def until(fact: Callable[[], bool], *, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not fact():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def read(registry: CollectorRegistry) -> Samples:
    return samples(generate_latest(registry).decode())


# The collector


async def test_the_collector_counts_what_happens_in_its_instance(
    make_monque: Make, registry: CollectorRegistry
) -> None:
    monque = make_monque(options=replace(QUICK, max_retries=2))
    registry.register(MonqueCollector(monque))
    await monque.open()

    @monque.worker("greet")
    async def greet(job: Job[str]) -> None:
        if job.data == "bad":
            raise ValueError("no such address")

    await monque.enqueue_many([NewJob("greet", "good"), NewJob("greet", "good", run_at=ago(seconds=40))])
    job = await monque.enqueue("greet", "bad")
    await monque.start()

    async def it_is_over() -> None:
        found = await monque.get_job(job.id)
        assert found is not None
        assert found.status is JobStatus.FAILED
        assert read(registry).get(("monque_jobs_failed_total", ("greet",))) == 1

    await eventually(it_is_over)
    now = read(registry)
    assert now[("monque_jobs_enqueued_total", ("greet",))] == 3
    assert now[("monque_jobs_completed_total", ("greet",))] == 2
    assert now[("monque_jobs_retried_total", ("greet",))] == 1
    assert now[("monque_job_run_seconds_count", ("greet",))] == 4
    assert now[("monque_job_wait_seconds_count", ("greet",))] == 4
    assert now[("monque_job_wait_seconds_bucket", ("greet", "30.0"))] == 3
    assert now[("monque_job_wait_seconds_bucket", ("greet", "60.0"))] == 4


async def test_the_collector_counts_runs_that_were_snoozed_and_cancelled(
    make_monque: Make, registry: CollectorRegistry
) -> None:
    monque = make_monque()
    registry.register(MonqueCollector(monque))
    await monque.open()

    @monque.worker("greet")
    async def greet(job: Job[str]) -> None:
        raise Snooze(timedelta(hours=1)) if job.data == "later" else Cancel()

    await monque.enqueue_many([NewJob("greet", "later"), NewJob("greet", "never")])
    await monque.run_until_idle()

    now = read(registry)
    assert now[("monque_jobs_snoozed_total", ("greet",))] == 1
    assert now[("monque_jobs_cancelled_total", ("greet",))] == 1
    assert now[("monque_job_run_seconds_count", ("greet",))] == 2


async def test_the_collector_counts_jobs_that_recovery_gave_up_but_not_how_long_they_ran(
    make_monque: Make, registry: CollectorRegistry, collection: Jobs
) -> None:
    await collection.insert_one(claimed("dead", lastHeartbeat=ago(minutes=5)))
    monque = make_monque(options=replace(QUICK, max_retries=1))
    registry.register(MonqueCollector(monque))

    await monque.open()

    now = read(registry)
    assert now[("monque_jobs_failed_total", ("work",))] == 1
    assert ("monque_job_run_seconds_count", ("work",)) not in now
    assert ("monque_job_wait_seconds_count", ("work",)) not in now


async def test_the_collector_shows_how_many_wait_until_the_instance_stops(
    monque: Monque, registry: CollectorRegistry, collection: Jobs
) -> None:
    registry.register(MonqueCollector(monque))
    await collection.insert_many(
        [document(name="greet", nextRunAt=ago(minutes=2)), document(name="greet", nextRunAt=ahead(hours=1))]
    )
    await monque.start()

    def it_is_known() -> None:
        now = read(registry)
        assert now.get(("monque_queue_depth", ("greet", "due"))) == 1
        assert now[("monque_queue_depth", ("greet", "later"))] == 1
        assert now[("monque_queue_depth", ("greet", "processing"))] == 0
        assert 110 < now[("monque_queue_oldest_due_seconds", ("greet",))] < 600

    await eventually(it_is_known)
    assert 0 <= time.time() - read(registry)[("monque_last_survey_timestamp_seconds", ())] < 300
    await monque.stop()
    assert read(registry)[("monque_last_survey_timestamp_seconds", ())] == 0
    assert [name for name, _ in read(registry) if name.startswith("monque_queue")] == []


async def test_the_collector_shows_which_names_are_paused_and_does_not_count_parked_jobs(
    make_monque: Make, registry: CollectorRegistry, collection: Jobs
) -> None:
    monque = await make_monque().open()
    registry.register(MonqueCollector(monque))
    parked = document(name="greet", nextRunAt=PARKED)
    await collection.insert_many([document(name="greet"), parked, document(name="other")])
    await monque.pause("greet")
    await monque.start()

    def it_is_known() -> None:
        now = read(registry)
        assert now.get(("monque_name_paused", ("greet",))) == 1
        assert now[("monque_name_paused", ("other",))] == 0
        assert now[("monque_queue_depth", ("greet", "due"))] == 1
        assert now[("monque_queue_depth", ("greet", "later"))] == 0

    await eventually(it_is_known)
    await monque.stop()
    assert [name for name, _ in read(registry) if name == "monque_name_paused"] == []


async def test_a_name_whose_jobs_are_gone_has_zero_of_them(
    monque: Monque, registry: CollectorRegistry
) -> None:
    from monque import QueueDepth

    collector = MonqueCollector(monque)
    registry.register(collector)
    some, none = {"time": 2, "signal": 1}, {"time": 0, "signal": 0}
    depths = [QueueDepth(name="a", due=3, waiting=some), QueueDepth(name="b", waiting=none)]
    collector.surveyed(depths, collection="shop.jobs")
    assert read(registry)[("monque_jobs_waiting", ("a", "time"))] == 2
    collector.surveyed([QueueDepth(name="b", later=1, waiting=none)], collection="shop.jobs")

    now = read(registry)
    assert now[("monque_jobs_waiting", ("a", "time"))] == 0
    assert now[("monque_jobs_waiting", ("b", "signal"))] == 0
    assert now[("monque_queue_depth", ("a", "due"))] == 0
    assert now[("monque_queue_depth", ("b", "later"))] == 1
    collector.surveyed([QueueDepth(name="c")], collection="shop.jobs")  # nobody counts them
    assert ("monque_jobs_waiting", ("c", "time")) not in read(registry)


async def test_two_collectors_of_one_registry_need_names_of_their_own(
    make_monque: Make, registry: CollectorRegistry
) -> None:
    first, second = await make_monque().open(), await make_monque().open()
    registry.register(MonqueCollector(first))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(MonqueCollector(second))
    registry.register(MonqueCollector(second, namespace="reports"))
    await second.enqueue("greet")

    assert [key for key in read(registry) if "enqueued_total" in key[0]] == [
        ("reports_jobs_enqueued_total", ("greet",))
    ]


async def test_a_sync_monque_has_one_too(uri: str, registry: CollectorRegistry) -> None:
    def program() -> None:
        with SyncMonque(uri, options=QUICK) as monque:
            registry.register(MonqueCollector(monque))
            monque.worker("greet", lambda job: None)
            monque.enqueue("greet")
            monque.run_until_idle()

    await asyncio.to_thread(program)

    assert read(registry)[("monque_jobs_completed_total", ("greet",))] == 1


# The port


@pytest.fixture
def jobs(server: EmbeddedMongo, collection: Jobs) -> Any:
    with MongoClient(server.uri, tz_aware=True) as client:
        yield client[collection.database.name][collection.name]


@pytest.mark.parametrize("target", ["measured:monque", "measured:blocking"])
def test_a_worker_process_shows_its_metrics_and_those_of_the_code(
    target: str, start: Start, jobs: Any
) -> None:
    jobs.insert_many([document(name="work", data="it"), document(name="later", nextRunAt=ahead(hours=1))])
    worker = start("worker", target, "--metrics-port", "0")
    [port] = worker.wait_for(PORT)

    until(lambda: scrape(port).get(("monque_jobs_completed_total", ("work",))) == 1)
    until(lambda: scrape(port).get(("monque_queue_depth", ("later", "later"))) == 1)
    now = scrape(port)
    assert now[("shop_mails_total", ())] == 1
    assert now[("monque_job_run_seconds_count", ("work",))] == 1
    assert ("python_info" in {name for name, _ in now}) is True
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_other_paths_are_not_found(start: Start) -> None:
    worker = start("worker", "measured:monque", "--metrics-port", "0")
    [port] = worker.wait_for(PORT)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/secrets", timeout=10)
    with refused.value:
        assert refused.value.code == 404
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_one_scrape_sees_all_processes_and_forgets_nothing_when_one_dies(start: Start, jobs: Any) -> None:
    jobs.insert_many(document(name="work", data="it", nextRunAt=ago(seconds=s)) for s in range(100))
    worker = start(
        "worker", "measured:monque", "--processes", "3", "--metrics-port", "0", "--concurrency", "1"
    )
    [port] = worker.wait_for(PORT)
    done = ("monque_jobs_completed_total", ("work",))

    until(lambda: scrape(port).get(done) == 100)
    assert scrape(port)[("shop_mails_total", ())] == 100
    until(lambda: scrape(port).get(("monque_queue_depth", ("work", "due"))) == 0)
    jobs.insert_one(document(name="die"))
    worker.wait_for("was ended by SIGKILL")
    jobs.delete_many({"name": "die"})
    jobs.insert_many(document(name="work", data="it", nextRunAt=ago(seconds=s)) for s in range(10))
    until(lambda: scrape(port).get(done, 0) >= 110)
    assert scrape(port)[done] == 110
    worker.send(signal.SIGTERM)
    assert worker.ends() == 0


def test_the_folder_of_the_processes_is_gone_afterwards(start: Start, jobs: Any, tmp_path: Path) -> None:
    jobs.insert_one(document(name="work", data="it"))
    arguments = ("--processes", "2", "--metrics-port", "0", "--until-idle")
    worker = start("worker", "measured:monque", *arguments, TMPDIR=str(tmp_path))

    assert worker.ends() == 0
    assert jobs.count_documents({"status": "completed"}) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_is_told_in_a_sentence(processes: str, start: Start) -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        worker = start("worker", "measured:monque", "--metrics-port", str(port), "--processes", processes)

        assert worker.ends() == 1
    assert worker.text.startswith(f"Error: cannot listen on the metrics port {port}: ")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_without_the_extra_it_is_told_what_to_install(processes: str, start: Start, tmp_path: Path) -> None:
    missing = tmp_path / "prometheus_client.py"
    missing.write_text("raise ModuleNotFoundError('none', name='prometheus_client')")
    arguments = ("--metrics-port", "0", "--processes", processes)
    worker = start("worker", "measured:monque", *arguments, PYTHONPATH=str(tmp_path))

    assert worker.ends() == 1
    assert worker.text == (
        "Error: --metrics-port needs prometheus_client; install it with: pip install 'pymonque[prometheus]'\n"
    )


def test_stuck_handlers_are_counted_until_they_end(make_monque: Make) -> None:
    collector = MonqueCollector(make_monque())
    registry = CollectorRegistry()
    registry.register(collector)
    collector.stuck("work", 2)
    stuck = registry.get_sample_value("monque_jobs_stuck", {"job_name": "work"})
    collector.stuck("work", 0)

    assert stuck == 2
    assert registry.get_sample_value("monque_jobs_stuck", {"job_name": "work"}) == 0


# The page


def test_the_page_lists_every_metric(make_monque: Make) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "observability.md"
    table = guide.read_text().partition("\n## Metrics\n")[2].partition("\n\n- ")[0]
    there = {metric.name: metric.type for metric in MonqueCollector(make_monque()).collect()}

    listed = re.findall(r"^\| .*? \| `(monque_\w+)` \| (\w+) \|", table, re.MULTILINE)
    assert {name.removesuffix("_total"): kind for name, kind in listed} == there
    ours = {otel.SENT, otel.CONSUMED, otel.PROCESS_DURATION, otel.JOB_WAIT}
    assert set(re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE)) == ours | {
        otel.QUEUE_DEPTH,
        otel.JOBS_WAITING,
        otel.OLDEST_DUE,
        otel.LAST_SURVEY,
        otel.NAME_PAUSED,
        otel.STALL,
        otel.STUCK,
    }
