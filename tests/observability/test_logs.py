"""Log lines say which job they are about: the scheduler's own, and those of handlers."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from monque import Cancel, Fail, Job, JobLogFilter, Monque, NewJob, Snooze, current_job
from monque.cli.log import JsonFormatter, TextFormatter
from support.aliases import Collection, Make
from support.jobs import document
from support.options import QUICK
from support.waiting import eventually

shop = logging.getLogger("shop.mail")


class Lines(logging.Handler):
    """Keeps records as a handler with the filter sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(JobLogFilter())
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def about(self, job: Job[Any]) -> list[logging.LogRecord]:
        return [record for record in self.records if getattr(record, "job_id", None) == str(job.id)]

    def of(self, logger: str) -> list[logging.LogRecord]:
        return [record for record in self.records if record.name == logger]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Everything that is logged, from the level of debugging on, except by the driver."""
    handler, root = Lines(), logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", "monque", "pymongo")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.INFO if name == "pymongo" else logging.DEBUG)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


# Lines of handlers


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_handlers_own_line_carries_its_job(kind: str, monque: Monque, lines: Lines) -> None:
    def send(job: Job[Any]) -> None:
        shop.info("sent")

    async def send_async(job: Job[Any]) -> None:
        await asyncio.sleep(0)
        shop.info("sent")

    monque.worker("send", send if kind == "def" else send_async)
    job = await monque.enqueue("send")
    await monque.run_until_idle()

    [line] = lines.of("shop.mail")
    assert (
        vars(line).items()
        >= {
            "job_id": str(job.id),
            "job_name": "send",
            "job_attempt": 1,
            "instance_id": monque.instance_id,
        }.items()
    )


async def test_a_line_from_a_task_or_thread_that_the_handler_starts_carries_it_too(
    monque: Monque, lines: Lines
) -> None:
    @monque.worker("send")
    async def send(job: Job[Any]) -> None:
        async def later() -> None:
            shop.info("from a task")

        await asyncio.create_task(later())
        await asyncio.to_thread(shop.info, "from a thread")

    job = await monque.enqueue("send")
    await monque.run_until_idle()

    said = [record.getMessage() for record in lines.about(job) if record.name == "shop.mail"]
    assert said == ["from a task", "from a thread"]


async def test_a_line_outside_of_a_job_passes_without_fields(monque: Monque, lines: Lines) -> None:
    shop.info("by itself")

    [line] = lines.of("shop.mail")
    assert not hasattr(line, "job_id")


async def test_a_line_that_names_a_job_itself_keeps_it(monque: Monque, lines: Lines) -> None:
    @monque.worker("send")
    async def send(job: Job[Any]) -> None:
        shop.info("about another", extra={"job_id": "another"})

    await monque.enqueue("send")
    await monque.run_until_idle()

    [line] = lines.of("shop.mail")
    assert line.job_id == "another"
    assert not hasattr(line, "job_name")


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_jobs_that_run_at_once_do_not_mix(kind: str, monque: Monque) -> None:
    seen: list[tuple[Any, Any]] = []

    def look(job: Job[int]) -> None:
        found = current_job()
        seen.append((job, found))

    async def look_async(job: Job[int]) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            look(job)

    monque.worker("look", look if kind == "def" else look_async, concurrency=20)
    await monque.enqueue_many(NewJob("look", number) for number in range(200))
    await monque.run_until_idle()

    assert len(seen) >= 200
    assert all(job is found for job, found in seen)
    assert current_job() is None


async def test_a_job_does_not_find_the_context_variables_of_the_one_before(monque: Monque) -> None:
    """The end of one job starts the next one of its name; that must not make it its heir."""
    user = contextvars.ContextVar[str]("user", default="nobody")
    found: list[str] = []

    @monque.worker("visit", concurrency=1)
    async def visit(job: Job[str]) -> None:
        found.append(user.get())
        user.set(job.data)

    await monque.enqueue_many(NewJob("visit", name) for name in ("ada", "bob", "eve") * 5)
    await monque.run_until_idle()

    assert found == ["nobody"] * 15


async def test_the_job_of_a_payload_that_does_not_fit_is_known_to_listeners(monque: Monque) -> None:
    found: list[Any] = []
    monque.on("job:fail", lambda event: found.append(current_job()))

    @monque.worker("count", max_attempts=1)
    async def count(job: Job[int]) -> None: ...

    stored = await monque.enqueue("other", "no number")
    await monque.database["monque_jobs"].update_one({"_id": stored.id}, {"$set": {"name": "count"}})
    await monque.run_until_idle()

    assert [job.id for job in found] == [stored.id]


# Lines of the scheduler


async def test_the_start_and_the_end_of_a_job_are_logged_for_debugging(monque: Monque, lines: Lines) -> None:
    @monque.worker("send")
    async def send(job: Job[Any]) -> None: ...

    job = await monque.enqueue("send")
    await monque.run_until_idle()

    start, end = lines.about(job)
    assert start.getMessage() == f"job {job.id} (send) starts"
    assert end.getMessage() == f"job {job.id} (send) completed"
    assert (start.name, start.levelno, end.levelno) == ("monque", logging.DEBUG, logging.DEBUG)
    assert (end.job_name, end.job_attempt, end.instance_id) == ("send", 1, monque.instance_id)
    assert 0 <= end.job_duration < 10


async def test_a_failed_run_is_logged_with_its_error_and_a_given_up_job_as_an_error(
    make_monque: Make, lines: Lines
) -> None:
    monque = await make_monque(options=replace(QUICK, max_retries=2)).open()

    @monque.worker("send")
    async def send(job: Job[Any]) -> None:
        raise ValueError("no such address")

    job = await monque.enqueue("send")
    await monque.start()
    failures: list[Any] = []

    def failed_twice() -> None:
        failures[:] = [record for record in lines.about(job) if record.levelno > logging.DEBUG]
        assert len(failures) == 2

    await eventually(failed_twice)
    first, last = failures
    assert (first.levelno, last.levelno) == (logging.INFO, logging.ERROR)
    assert first.getMessage() == (
        f"job {job.id} (send) failed and is tried again: ValueError: no such address"
    )
    assert last.getMessage().endswith("failed and was given up: ValueError: no such address")
    assert (first.job_attempt, last.job_attempt) == (1, 2)
    assert all(record.exc_info[0] is ValueError and record.job_duration >= 0 for record in failures)


async def test_a_failure_that_the_handler_decided_on_is_a_warning_without_a_traceback(
    monque: Monque, lines: Lines
) -> None:
    @monque.worker("charge")
    async def charge(job: Job[str]) -> None:
        if job.data == "declined":
            raise Fail("declined")
        try:
            raise ConnectionError("the bank is gone")
        except ConnectionError as error:
            raise Fail("no answer") from error

    decided, broken = await monque.enqueue(charge, "declined"), await monque.enqueue(charge, "broken")
    await monque.run_until_idle()

    [said] = [record for record in lines.about(decided) if record.levelno > logging.DEBUG]
    [raised] = [record for record in lines.about(broken) if record.levelno > logging.DEBUG]
    assert (said.levelno, said.exc_info) == (logging.WARNING, None)
    assert said.getMessage() == f"job {decided.id} (charge) failed and was given up: declined"
    assert raised.levelno == logging.ERROR
    assert raised.exc_info is not None
    assert isinstance(raised.exc_info[1].__cause__, ConnectionError)


async def test_an_error_with_a_very_long_text_is_cut_in_the_log(monque: Monque, lines: Lines) -> None:
    """As in the database; a listener's error, too."""

    @monque.worker("send")
    async def send(job: Job[Any]) -> None:
        raise ValueError("x" * 20_000_000)

    @monque.on("job:fail")
    def listener(event: Any) -> None:
        raise LookupError("y" * 20_000_000)

    await monque.enqueue("send")
    await monque.run_until_idle()
    formatted = [logging.Formatter().format(record) for record in lines.records]

    for text in ("ValueError: xxx", "LookupError: yyy"):
        assert any("Traceback" in line and text in line for line in formatted), text
    assert max(map(len, formatted)) < 100_000


async def test_a_lost_claim_names_its_job(make_monque: Make, collection: Collection, lines: Lines) -> None:
    options = replace(
        QUICK, heartbeat_interval=timedelta(milliseconds=100), heartbeat_tolerance=timedelta(seconds=5)
    )
    monque = await make_monque(options=options).open()
    started = asyncio.Event()

    @monque.worker("long")
    async def long(job: Job[Any]) -> None:
        started.set()
        await asyncio.sleep(60)

    job = await monque.enqueue("long")
    await monque.start()
    await asyncio.wait_for(started.wait(), 10)
    await monque.delete_job(job.id)

    def told() -> None:
        warnings = [record for record in lines.about(job) if record.levelno == logging.WARNING]
        assert len(warnings) == 1
        line = warnings[0]
        assert "lost the claim" in line.getMessage()
        assert (line.job_name, line.job_attempt, line.instance_id) == ("long", 1, monque.instance_id)

    await eventually(told)


@pytest.mark.parametrize(
    ("verdict", "expires", "said"),
    [
        (Cancel("the customer has left"), None, "was cancelled by its handler: the customer has left"),
        (None, timedelta(milliseconds=1), "was cancelled before it began: expired"),
        (Snooze(timedelta(days=1)), timedelta(hours=1), "was cancelled: its handler put it off beyond its"),
    ],
)
async def test_the_log_says_why_a_job_was_cancelled(
    monque: Monque, lines: Lines, verdict: Exception | None, expires: timedelta | None, said: str
) -> None:
    def raises(job: Job[None]) -> None:
        if verdict is not None:
            raise verdict

    monque.worker("end", raises)
    due = datetime.now(UTC) - timedelta(seconds=1)
    job = await monque.enqueue("end", run_at=due, expires=expires)
    await monque.run_until_idle()

    [line] = [line for line in lines.about(job) if line.levelno == logging.INFO]
    assert said in line.getMessage()


async def test_the_log_has_the_reason_of_a_request(monque: Monque, lines: Lines) -> None:
    began = asyncio.Event()

    @monque.worker("wait")
    async def wait(job: Job[None]) -> None:
        began.set()
        await asyncio.Event().wait()

    job = await monque.enqueue(wait)
    await monque.start()
    await began.wait()
    await monque.cancel_job(job.id, running=True, reason="wrong customer")
    await monque.stop()

    [line] = [line for line in lines.about(job) if line.levelno == logging.INFO]
    assert line.getMessage().endswith("was stopped and cancelled: wrong customer")


async def test_without_debugging_the_scheduler_says_nothing_of_jobs_that_go_well(
    monque: Monque, lines: Lines
) -> None:
    logging.getLogger("monque").setLevel(logging.INFO)

    @monque.worker("send")
    async def send(job: Job[Any]) -> None: ...

    job = await monque.enqueue("send")
    await monque.run_until_idle()

    assert lines.about(job) == []


# On the command line


def _line_of(logger: str, **extra: Any) -> logging.LogRecord:
    return logging.getLogger(logger).makeRecord(
        logger, logging.INFO, "f", 1, "sent to %s", ("ada",), None, extra=extra
    )


def test_the_text_format_ends_in_the_fields_of_the_job() -> None:
    record = _line_of("shop", job_id="65f1", job_name="send", instance_id="long and known by the pid")

    assert TextFormatter().format(record).endswith(": sent to ada job_id=65f1 job_name=send")


def test_the_json_format_has_the_fields_of_the_job() -> None:
    record = _line_of("shop", job_id="65f1", job_duration=0.25, instance_id="one")

    fields = json.loads(JsonFormatter().format(record))
    assert fields["message"] == "sent to ada"
    assert (fields["job_id"], fields["job_duration"], fields["instance_id"]) == ("65f1", 0.25, "one")


async def test_a_worker_process_writes_the_job_into_the_lines_of_its_handlers(
    start: Callable[..., Any], collection: Collection
) -> None:
    done = document(name="work", data="this")
    failed = document(name="fail")
    await collection.insert_many([done, failed])
    worker = start("worker", "measured:monque", "--until-idle", "--log-format", "json")

    assert await asyncio.to_thread(worker.ends) == 0
    written = [json.loads(line) for line in worker.text.splitlines()]
    [said] = [line for line in written if line["logger"] == "shop"]
    assert (said["message"], said["job_id"], said["job_name"]) == (
        "worked on this",
        str(done["_id"]),
        "work",
    )
    [given_up] = [line for line in written if line.get("job_name") == "fail"]
    assert (given_up["level"], given_up["job_id"], given_up["job_attempt"]) == (
        "error",
        str(failed["_id"]),
        1,
    )
    assert "ValueError: as it should" in given_up["exception"]


def test_the_current_job_of_a_thread_of_its_own_is_none() -> None:
    """A thread that nobody handed a context has none."""
    found: list[Any] = ["something"]

    def look() -> None:
        found[0] = current_job()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

    assert found == [None]
