"""OpenTelemetry: a trace leads from where a job was stored to where it runs, and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from monque import (
    Cancel,
    ConnectionError,
    Fail,
    Job,
    JobStatus,
    Monque,
    NewJob,
    PayloadError,
    Snooze,
    SyncMonque,
)
from monque.fastapi import JobRouter, setup_monque, worker_lifespan
from observability.conftest import Spans
from support import routed
from support.aliases import Collection, Make
from support.clocks import ago
from support.jobs import document, find_one
from support.options import QUICK
from support.waiting import Events, eventually

Jobs = Collection


def span_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def links(span: ReadableSpan) -> list[str]:
    return [f"{link.context.span_id:016x}" for link in span.links]


def parent(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def is_sampled(traceparent: str) -> bool:
    return bool(int(traceparent.rpartition("-")[2], 16) & 1)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def come_true(monque: Monque, job: Job[Any], status: JobStatus) -> None:
    async def it_is_so() -> None:
        found = await monque.get_job(job.id)
        assert found is not None
        assert found.status is status

    await eventually(it_is_so)


async def nothing(job: Job[Any]) -> None: ...


# The first run


async def test_the_consumers_span_belongs_to_the_trace_of_the_producer_and_links_to_its_span(
    make_monque: Make, spans: Spans
) -> None:
    producer, consumer = await make_monque().open(), await make_monque().open()
    consumer.worker("greet", nothing)
    job = await producer.enqueue("greet")
    await consumer.run_until_idle()

    sent, processed = spans.one("send greet"), spans.one("process greet")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert links(processed) == [span_id(sent)]
    assert parent(processed) == span_id(sent)
    assert trace_id(processed) == trace_id(sent)
    assert attributes(sent) == {
        "messaging.system": "monque",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "greet",
        "messaging.message.id": str(job.id),
    }
    assert attributes(processed) == {
        "messaging.system": "monque",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "greet",
        "messaging.message.id": str(job.id),
        "messaging.client.id": consumer.instance_id,
        "monque.job.attempt": 1,
    }
    assert processed.status.status_code is StatusCode.UNSET


async def test_it_leads_from_one_process_into_another(
    monque: Monque, spans: Spans, start: Callable[..., Any]
) -> None:
    with trace.get_tracer("shop").start_as_current_span("request") as request:
        await monque.enqueue("greet", "ada")
    worker = start("worker", "traced:monque", "--until-idle")

    assert await asyncio.to_thread(worker.ends) == 0
    there = {span["name"]: span for span in map(json.loads, worker.wait_for("(?m)^span (.*)$", times=2))}
    sent = spans.one("send greet")
    process = there["process greet"]
    assert parent(sent) == f"{request.get_span_context().span_id:016x}"
    assert [link["context"]["span_id"] for link in process["links"]] == [f"0x{span_id(sent)}"]
    assert process["context"]["trace_id"] == f"0x{trace_id(sent)}"
    assert there["inside"]["parent_id"] == process["context"]["span_id"]


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_spans_of_the_handler_stand_below_its_own(kind: str, monque: Monque, spans: Spans) -> None:
    def inside(job: Job[Any]) -> None:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            pass

    async def inside_async(job: Job[Any]) -> None:
        await asyncio.sleep(0)
        inside(job)

    monque.worker("greet", inside if kind == "def" else inside_async)
    await monque.enqueue("greet")
    await monque.run_until_idle()

    assert parent(spans.one("inside")) == span_id(spans.one("process greet"))


async def test_a_handler_in_a_child_process_belongs_to_the_span_of_its_run(
    make_monque: Make, spans: Spans
) -> None:
    monque = await make_monque(options=replace(QUICK, child_processes=1)).open()
    monque.worker("traced", routed.traced, mode="process", store_result=True)
    job = await monque.enqueue("traced")
    await monque.run_until_idle()

    processed = spans.one("process traced")
    assert await monque.result_of(job.id) == f"{trace_id(processed)} {span_id(processed)}"


async def test_a_job_that_a_handler_stores_continues_the_trace(monque: Monque, spans: Spans) -> None:
    monque.worker("second", nothing)

    @monque.worker("first")
    async def first(job: Job[Any]) -> None:
        await monque.enqueue("second")

    await monque.enqueue("first")
    await monque.run_until_idle()

    assert parent(spans.one("send second")) == span_id(spans.one("process first"))
    assert {trace_id(spans.one(name)) for name in spans.names()} == {trace_id(spans.one("send first"))}


async def test_jobs_that_run_at_once_keep_their_traces_apart(monque: Monque, spans: Spans) -> None:
    current: dict[str, str] = {}

    @monque.worker("greet", concurrency=20)
    async def greet(job: Job[int]) -> None:
        await asyncio.sleep(0.001)
        current[str(job.id)] = f"{trace.get_current_span().get_span_context().trace_id:032x}"

    await asyncio.gather(*(monque.enqueue("greet", number) for number in range(50)))
    await monque.run_until_idle()

    expected = {attributes(span)["messaging.message.id"]: trace_id(span) for span in spans.all("send greet")}
    assert len(set(expected.values())) == 50
    assert current == expected


async def test_the_span_around_start_is_not_the_parent_of_anything(
    monque: Monque, events: Events, spans: Spans
) -> None:
    monque.worker("greet", nothing)
    with trace.get_tracer("shop").start_as_current_span("startup"):
        await monque.start()
    await monque.database["monque_jobs"].insert_one(document(name="greet"))
    await events.wait("job:complete")

    processed = spans.one("process greet")
    assert parent(processed) is None
    assert links(processed) == []


# Later runs


async def test_a_retried_run_has_a_trace_of_its_own_with_a_link(make_monque: Make, spans: Spans) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=3)).open()

    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        if job.fail_count == 0:
            raise ValueError("not yet")

    job = await monque.enqueue("greet")
    await monque.start()
    await come_true(monque, job, JobStatus.COMPLETED)

    sent = spans.one("send greet")
    first, second = spans.all("process greet")
    assert [links(first), links(second)] == [[span_id(sent)], [span_id(sent)]]
    assert [parent(first), parent(second)] == [span_id(sent), None]
    assert trace_id(second) != trace_id(sent)
    assert [attributes(span)["monque.job.attempt"] for span in (first, second)] == [1, 2]
    assert first.status.status_code is StatusCode.ERROR
    assert second.status.status_code is StatusCode.UNSET


async def test_each_durable_step_has_a_span_and_all_runs_of_its_job_share_the_trace(
    monque: Monque, spans: Spans
) -> None:
    async def pay() -> str:
        return f"{trace.get_current_span().get_span_context().span_id:016x}"

    async def fails() -> None:
        raise ValueError("no")

    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        await job.step("pay", pay)
        if job.attempt == 1:
            await job.step("fails", fails)
        await job.sleep("nap", timedelta(milliseconds=1))
        await job.step("thread", len, [])

    with trace.get_tracer("shop").start_as_current_span("order"):
        job = await monque.enqueue("greet")
    await monque.start()
    await come_true(monque, job, JobStatus.COMPLETED)

    runs = spans.all("process greet")
    assert {trace_id(span) for span in runs} == {trace_id(spans.one("order"))}
    assert len(runs) == 3
    paid, failed, threaded = spans.one("step pay"), spans.one("step fails"), spans.one("step thread")
    assert [parent(paid), parent(failed), parent(threaded)] == [*[span_id(runs[0])] * 2, span_id(runs[2])]
    assert attributes(paid)["monque.step.kind"] == "step"
    assert failed.status.status_code is StatusCode.ERROR
    assert paid.status.status_code is runs[1].status.status_code is StatusCode.UNSET
    found = await monque.get_job(job.id)
    assert found is not None
    assert found.steps[0].value == span_id(paid)


async def test_a_delayed_run_has_a_trace_of_its_own_with_a_link(monque: Monque, spans: Spans) -> None:
    monque.worker("greet", nothing)
    job = await monque.enqueue("greet", delay=timedelta(milliseconds=50))
    await monque.start()
    await come_true(monque, job, JobStatus.COMPLETED)

    sent, processed = spans.one("send greet"), spans.one("process greet")
    assert links(processed) == [span_id(sent)]
    assert (parent(processed), trace_id(processed) == trace_id(sent)) == (None, False)


async def test_every_run_of_a_schedule_links_to_the_call_that_made_it(
    monque: Monque, spans: Spans, collection: Jobs
) -> None:
    monque.worker("report", nothing)
    schedule = await monque.schedule("0 0 * * *", "report")
    for _ in range(2):
        await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": ago(seconds=1)}})
        await monque.run_until_idle()

    sent, runs = spans.one("send report"), spans.all("process report")
    assert [links(run) for run in runs] == [[span_id(sent)]] * 2
    assert [parent(run) for run in runs] == [None, None]
    assert len({trace_id(run) for run in runs} | {trace_id(sent)}) == 3


async def test_a_job_given_back_at_shutdown_is_no_failure_and_keeps_its_context(
    monque: Monque, spans: Spans, collection: Jobs
) -> None:
    started = asyncio.Event()

    @monque.worker("long")
    async def long(job: Job[Any]) -> None:
        started.set()
        await asyncio.sleep(60)

    await monque.enqueue("long")
    await monque.start()
    await asyncio.wait_for(started.wait(), 10)
    await monque.stop(timeout=0)
    monque.worker("long", nothing, replace=True)
    await monque.run_until_idle()

    interrupted, second = spans.all("process long")
    assert interrupted.status.status_code is StatusCode.UNSET
    assert attributes(interrupted)["monque.job.interrupted"] is True
    assert links(second) == [span_id(spans.one("send long"))]


async def test_the_kept_run_of_a_schedule_that_gave_up_links_to_it_when_retried(
    make_monque: Make, spans: Spans, collection: Jobs
) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=1)).open()

    @monque.worker("report")
    async def report(job: Job[Any]) -> None:
        if job.cron is not None:
            raise ValueError("no paper")

    schedule = await monque.schedule("0 0 * * *", "report")
    await collection.update_one({"_id": schedule.id}, {"$set": {"nextRunAt": ago(seconds=1)}})
    await monque.run_until_idle()
    [kept] = await monque.get_jobs(status="failed")
    await monque.retry_job(kept.id)
    await monque.run_until_idle()

    assert [links(run) for run in spans.all("process report")] == [[span_id(spans.one("send report"))]] * 2


# Errors


async def test_a_failed_run_records_its_error(make_monque: Make, spans: Spans) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=1)).open()

    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        raise PayloadError("no such address", job_name="greet")

    await monque.enqueue("greet")
    await monque.run_until_idle()

    processed = spans.one("process greet")
    assert processed.status.status_code is StatusCode.ERROR
    assert processed.status.description == "monque.PayloadError: no such address"
    assert attributes(processed)["error.type"] == "monque.PayloadError"
    [event] = processed.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.message"] == "no such address"


async def test_an_error_that_cannot_be_shown_is_no_trouble(make_monque: Make, spans: Spans) -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("never")

    monque = await make_monque(options=replace(QUICK, max_retries=1)).open()

    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        raise UnspeakableError

    job = await monque.enqueue("greet")
    await monque.run_until_idle()

    await come_true(monque, job, JobStatus.FAILED)
    assert spans.one("process greet").status.status_code is StatusCode.ERROR


async def test_a_job_that_cannot_be_stored_is_an_error_of_the_producers_span(
    make_monque: Make, spans: Spans, uri: str
) -> None:
    monque = await make_monque(uri).open()
    await monque.client.close()
    with pytest.raises(ConnectionError):
        await monque.enqueue("greet")

    sent = spans.one("send greet")
    assert sent.status.status_code is StatusCode.ERROR
    assert attributes(sent)["error.type"].startswith("pymongo.")


# Ways to store


async def test_many_jobs_share_one_span_a_name(monque: Monque, spans: Spans) -> None:
    monque.worker("greet", nothing)
    monque.worker("report", nothing)
    await monque.enqueue_many([NewJob("greet"), NewJob("report"), NewJob("greet", unique_key="one")])
    await monque.run_until_idle()

    greet, report = spans.one("send greet"), spans.one("send report")
    assert attributes(greet)["messaging.batch.message_count"] == 2
    assert "messaging.message.id" in attributes(report)
    assert [links(span) for span in spans.all("process greet")] == [[span_id(greet)]] * 2
    assert links(spans.one("process report")) == [span_id(report)]


async def test_a_job_of_a_transaction_links_to_the_span_that_stored_it(monque: Monque, spans: Spans) -> None:
    monque.worker("greet", nothing)
    async with monque.client.start_session() as session, await session.start_transaction():
        await monque.enqueue("greet", session=session)
        await monque.enqueue("greet", unique_key="one", session=session)
    await monque.run_until_idle()

    first, second = (span_id(span) for span in spans.all("send greet"))
    assert sorted(links(span)[0] for span in spans.all("process greet")) == sorted([first, second])


async def test_a_taken_key_leaves_the_context_of_its_holder(
    monque: Monque, spans: Spans, collection: Jobs
) -> None:
    await monque.enqueue("greet", unique_key="one")
    await monque.enqueue("greet", unique_key="one")

    first, _ = spans.all("send greet")
    [stored] = await collection.find().to_list()
    assert stored["traceparent"].split("-")[1:3] == [trace_id(first), span_id(first)]


async def test_a_sync_monque_continues_the_trace_of_its_caller(
    spans: Spans, uri: str, collection: Jobs
) -> None:
    def program() -> None:
        with SyncMonque(uri, options=QUICK) as monque:
            with trace.get_tracer("shop").start_as_current_span("request"):
                monque.enqueue("greet")
            monque.worker("greet", lambda job: None)
            monque.run_until_idle()

    await asyncio.to_thread(program)

    assert parent(spans.one("send greet")) == span_id(spans.one("request"))
    assert links(spans.one("process greet")) == [span_id(spans.one("send greet"))]


async def test_a_handler_of_fastapi_and_its_dependencies_run_in_the_span(
    make_monque: Make, spans: Spans
) -> None:
    jobs, app = JobRouter(), FastAPI()

    def get_mailer() -> str:
        with trace.get_tracer("shop").start_as_current_span("dependency"):
            return "mailer"

    @jobs.job("send-mail")
    async def send_mail(job: Job[str], mailer: str = Depends(get_mailer)) -> None:
        with trace.get_tracer("shop").start_as_current_span("inside"):
            assert mailer == "mailer"

    setup_monque(app, make_monque(), routers=[jobs])
    async with worker_lifespan(app) as monque:
        job = await monque.enqueue("send-mail", "hello")
        await come_true(monque, job, JobStatus.COMPLETED)

    processed = spans.one("process send-mail")
    assert links(processed) == [span_id(spans.one("send send-mail"))]
    assert parent(spans.one("inside")) == span_id(processed)
    assert parent(spans.one("dependency")) == span_id(processed)


# The document


async def test_the_document_carries_the_context_and_keeps_it(
    make_monque: Make, spans: Spans, collection: Jobs
) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=2)).open()

    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        raise ValueError("never")

    job = await monque.enqueue("greet")
    stored = await collection.find_one()
    await monque.start()
    await come_true(monque, job, JobStatus.FAILED)
    await monque.retry_job(job.id)

    sent = spans.one("send greet")
    assert stored is not None
    assert stored["traceparent"].split("-")[:3] == ["00", trace_id(sent), span_id(sent)]
    assert is_sampled(stored["traceparent"])
    assert "tracestate" not in stored
    after = await find_one(collection)
    assert after["traceparent"] == stored["traceparent"]


@pytest.mark.parametrize(("length", "is_kept"), [(400, True), (600, False)])
async def test_the_state_of_vendors_is_kept_unless_it_is_too_long(
    length: int, is_kept: bool, monque: Monque, spans: Spans, collection: Jobs
) -> None:
    state = TraceState([(f"vendor{n}", "x" * 90) for n in range(length // 100)])
    remote = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(remote)))
    try:
        await monque.enqueue("greet")
    finally:
        context.detach(token)

    [stored] = await collection.find().to_list()
    assert stored["traceparent"].split("-")[1] == f"{1:032x}"
    assert stored.get("tracestate") == (state.to_header() if is_kept else None)


async def test_a_changed_schedule_carries_the_context_of_the_call_that_changed_it(
    monque: Monque, spans: Spans, collection: Jobs
) -> None:
    await monque.schedule("0 0 * * *", "report", {"page": 1})
    await monque.schedule("0 0 * * *", "report", {"page": 1})  # changes nothing
    [unchanged] = await collection.find().to_list()
    await monque.schedule("0 0 * * *", "report", {"page": 2})
    [changed] = await collection.find().to_list()

    first, _, third = spans.all("send report")
    assert unchanged["traceparent"].split("-")[2] == span_id(first)
    assert changed["traceparent"].split("-")[2] == span_id(third)


@pytest.mark.parametrize("traceparent", ["nonsense", 42, None, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
async def test_a_context_that_cannot_be_read_is_passed_over(
    traceparent: Any, monque: Monque, spans: Spans, collection: Jobs
) -> None:
    monque.worker("greet", nothing)
    await collection.insert_one(document(name="greet", traceparent=traceparent, tracestate=7))
    await monque.run_until_idle()

    processed = spans.one("process greet")
    assert (parent(processed), links(processed)) == (None, [])


async def test_what_is_not_sampled_stays_so(
    monque: Monque, monkeypatch: pytest.MonkeyPatch, collection: Jobs
) -> None:
    """The decision travels along: the worker must not record half of a trace."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    await monque.enqueue("greet")

    [stored] = await collection.find().to_list()
    assert not is_sampled(stored["traceparent"])


# Configured or not


async def test_nothing_is_added_while_no_provider_is_configured(monque: Monque, collection: Jobs) -> None:
    """The API is there, and imported by this very test."""
    seen: list[Any] = []

    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        seen.append(trace.get_current_span().get_span_context().is_valid)

    await monque.enqueue("greet")
    await monque.run_until_idle()

    [stored] = await collection.find().to_list()
    assert "traceparent" not in stored
    assert seen == [False]


async def test_a_provider_that_is_configured_late_counts_from_then_on(
    monque: Monque, events: Events, request: pytest.FixtureRequest
) -> None:
    monque.worker("greet", nothing)
    await monque.start()
    await monque.enqueue("greet")
    await events.wait("job:complete")
    spans: Spans = request.getfixturevalue("spans")
    await monque.enqueue("greet")
    await events.wait("job:complete", 2)

    await eventually(lambda: spans.one("process greet"))
    assert sorted(spans.names()) == ["process greet", "send greet"]


@pytest.mark.parametrize("verdict", [Snooze(timedelta(hours=1)), Cancel("gone")], ids=["snooze", "cancel"])
async def test_a_snooze_and_a_cancel_are_no_errors_of_the_span(
    monque: Monque, spans: Spans, verdict: Exception
) -> None:
    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        raise verdict

    await monque.enqueue("greet")
    await monque.run_until_idle()

    processed = spans.one("process greet")
    assert processed.status.status_code is StatusCode.UNSET
    assert "error.type" not in attributes(processed)
    assert processed.events == ()


async def test_a_timeout_is_an_error_of_the_span(monque: Monque, spans: Spans) -> None:
    @monque.worker("greet", timeout=timedelta(milliseconds=50), max_attempts=1)
    async def greet(job: Job[Any]) -> None:
        await asyncio.sleep(30)

    await monque.enqueue("greet")
    await monque.run_until_idle()

    processed = spans.one("process greet")
    assert processed.status.status_code is StatusCode.ERROR
    assert attributes(processed)["error.type"] == "monque.JobTimeoutError"
    assert "monque.job.interrupted" not in attributes(processed)


async def test_a_run_that_somebody_stops_is_no_error_of_the_span(monque: Monque, spans: Spans) -> None:
    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        await monque.cancel_job(job.id, running=True)
        await asyncio.sleep(30)

    await monque.enqueue("greet")
    await monque.run_until_idle()

    processed = spans.one("process greet")
    assert processed.status.status_code is StatusCode.UNSET
    assert attributes(processed)["monque.job.interrupted"] is True


async def test_a_fail_is_an_error_of_the_span(monque: Monque, spans: Spans) -> None:
    @monque.worker("greet")
    async def greet(job: Job[Any]) -> None:
        raise Fail("no such address")

    await monque.enqueue("greet")
    await monque.run_until_idle()

    processed = spans.one("process greet")
    assert processed.status.status_code is StatusCode.ERROR
    assert attributes(processed)["error.type"] == "monque.Fail"
