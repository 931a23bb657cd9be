"""Workers: how handlers are registered, called, bounded, and given their data."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict

from monque import (
    ConfigurationError,
    InvalidJobIdentifierError,
    Job,
    JobStatus,
    Monque,
    NewJob,
    Options,
    PayloadError,
    Worker,
    WorkerRegistrationError,
    Workers,
)
from support.aliases import Make
from support.clocks import ago
from support.jobs import document
from support.options import ONE_TRY, QUICK
from support.waiting import Events, eventually
from support.working import Pause


@pytest.fixture
async def monque(make_monque: Make) -> Monque:
    return await make_monque(options=ONE_TRY).open()


class Gauge:
    """How many are inside at once, now and at most."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


# Registering


async def test_a_worker_is_registered_as_a_decorator(monque: Monque) -> None:
    """FR-004."""
    seen = []

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        seen.append(job.data)

    await monque.enqueue(work, 1)
    await monque.run_until_idle()

    assert isinstance(work, Worker)
    assert work.name == "work"
    assert seen == [1]


async def test_a_worker_is_registered_with_the_handler_given(monque: Monque) -> None:
    """FR-004."""
    seen = []

    async def handle(job: Job[int]) -> None:
        seen.append(job.data)

    worker = monque.worker("work", handle)
    await monque.enqueue(worker, 1)
    await monque.run_until_idle()

    assert seen == [1]


async def test_a_job_enqueued_by_name_reaches_the_same_worker(monque: Monque) -> None:
    seen = []
    monque.worker("work", lambda job: seen.append(job.data))

    await monque.enqueue("work", {"n": 1})
    await monque.run_until_idle()

    assert seen == [{"n": 1}]


async def test_workers_are_declared_apart_and_handed_to_an_instance(
    make_monque: Make,
) -> None:
    workers = Workers()
    seen = []

    @workers.worker("work", concurrency=2)
    async def work(job: Job[int]) -> None:
        seen.append(job.data)

    async with make_monque(workers=workers) as monque:
        await monque.enqueue(work, 1)
        await monque.run_until_idle()

    assert seen == [1]
    assert list(workers) == [work]
    assert work.concurrency == 2


async def test_a_worker_can_be_called_like_its_handler(monque: Monque) -> None:
    @monque.worker("double")
    async def double(job: Job[int]) -> int:
        return job.data * 2

    job = replace(await monque.enqueue(double, 1), data=21)

    assert await double(job) == 42


async def test_a_second_worker_of_a_name_is_refused(monque: Monque) -> None:
    monque.worker("work", lambda job: None)

    with pytest.raises(
        WorkerRegistrationError, match=r"'work' has a worker already .*replace=True"
    ) as refused:
        monque.worker("work", lambda job: None)

    assert refused.value.job_name == "work"


async def test_a_worker_declared_apart_takes_its_name_too(make_monque: Make) -> None:
    workers = Workers()
    workers.worker("work", lambda job: None)

    with pytest.raises(WorkerRegistrationError):
        make_monque(workers=workers).worker("work", lambda job: None)
    with pytest.raises(WorkerRegistrationError):
        workers.worker("work", lambda job: None)


async def test_a_refused_decorator_leaves_the_first_worker_in_place(monque: Monque) -> None:
    seen = []
    monque.worker("work", lambda job: seen.append("first"))
    with pytest.raises(WorkerRegistrationError):

        @monque.worker("work")
        async def second(job: Job[None]) -> None:
            seen.append("second")

    await monque.enqueue("work")
    await monque.run_until_idle()

    assert seen == ["first"]


async def test_replace_takes_the_place_of_the_first_worker(monque: Monque) -> None:
    seen = []
    monque.worker("work", lambda job: seen.append("first"))
    monque.worker("work", lambda job: seen.append("second"), replace=True)

    await monque.enqueue("work")
    await monque.run_until_idle()

    assert seen == ["second"]


async def test_replacing_a_worker_does_not_forget_its_running_jobs(monque: Monque, events: Events) -> None:
    """The running job of the old handler goes on, is settled, and keeps its slot until then."""
    let_go = asyncio.Event()
    seen: list[str] = []

    @monque.worker("work", concurrency=1)
    async def first(job: Job[None]) -> None:
        await let_go.wait()
        seen.append("first")

    await monque.start()
    running = await monque.enqueue("work")
    await events.wait("job:start")

    @monque.worker("work", concurrency=1, replace=True)
    async def second(job: Job[None]) -> None:
        seen.append("second")

    await monque.enqueue("other")
    waiting = await monque.enqueue("work")
    monque.worker("other", lambda job: None)  # its job is claimed by a look that could take the waiting one
    await events.wait("job:complete")
    held_back = await monque.get_job(waiting.id)
    let_go.set()
    await events.wait("job:complete", 3)

    assert held_back is not None
    assert held_back.status is JobStatus.PENDING
    assert seen == ["first", "second"]
    settled = await monque.get_job(running.id)
    assert settled is not None
    assert settled.status is JobStatus.COMPLETED


async def test_a_worker_registered_after_start_is_picked_up_promptly(
    make_monque: Make,
) -> None:
    """Its jobs wait already, and the next poll is a minute away."""
    monque = await make_monque(options=_polling_every_minute()).open()
    events = Events(monque)
    await monque.start()
    await monque.enqueue("late")
    await events.wait("changestream:connected")

    monque.worker("late", lambda job: None)

    await events.wait("job:complete", within=10)


async def test_a_worker_registered_from_another_thread_is_picked_up_promptly(
    make_monque: Make,
) -> None:
    monque = await make_monque(options=_polling_every_minute()).open()
    events = Events(monque)
    await monque.start()
    await monque.enqueue("late")
    await events.wait("changestream:connected")

    await asyncio.to_thread(monque.worker, "late", lambda job: None)

    await events.wait("job:complete", within=10)


@pytest.mark.parametrize("name", ["", "two words", "tab\t", "x" * 256, 7])
async def test_a_wrong_name_is_refused(monque: Monque, name: Any) -> None:
    with pytest.raises(InvalidJobIdentifierError) as refused:
        monque.worker(name, lambda job: None)

    assert refused.value.field == "name"
    assert refused.value.value == name


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, "3", True])
async def test_a_wrong_concurrency_is_refused(monque: Monque, concurrency: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"concurrency of 'work' must be a whole number"):
        monque.worker("work", lambda job: None, concurrency=concurrency)


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        ("not callable", "must be callable"),
        (lambda: None, "takes one argument"),
        (lambda a, b: None, "takes one"),
    ],
)
async def test_a_value_that_cannot_be_a_handler_is_refused(
    monque: Monque, handler: Any, complaint: str
) -> None:
    with pytest.raises(WorkerRegistrationError, match=complaint):
        monque.worker("work", handler)


def _generator(job: Job[int]) -> Any:
    yield job.data


async def _async_generator(job: Job[int]) -> Any:
    yield job.data


class Yielding:
    def method(self, job: Job[int]) -> Any:
        yield job.data

    async def async_method(self, job: Job[int]) -> Any:
        yield job.data

    def __call__(self, job: Job[int]) -> Any:
        yield job.data


@pytest.mark.parametrize(
    "handler",
    [
        _generator,
        _async_generator,
        Yielding().method,
        Yielding().async_method,
        Yielding(),
        functools.partial(_generator),
        functools.partial(Yielding().async_method),
        functools.partial(Yielding()),
    ],
    ids=["def", "async", "method", "async method", "object", "partial", "partial method", "partial object"],
)
async def test_a_generator_function_is_refused_as_a_handler(monque: Monque, handler: Any) -> None:
    """Calling it would run nothing of it, and the job would complete."""
    with pytest.raises(
        WorkerRegistrationError, match=r"'work' cannot be used: .* contains a yield, .*; remove"
    ):
        monque.worker("work", handler)


async def test_a_worker_declared_apart_cannot_be_a_generator_function_either() -> None:
    with pytest.raises(WorkerRegistrationError, match="contains a yield"):
        Workers().worker("work")(_async_generator)


def _consumed(generator: Any) -> Any:
    """A decorator, as some libraries have it, that runs a generator function to its end."""

    @functools.wraps(generator)
    def run(job: Job[int]) -> None:
        list(generator(job))

    return run


def _called(generator: Any) -> Any:
    @functools.wraps(generator)
    def call(job: Job[int]) -> Any:
        return generator(job)

    return call


def _called_on_the_loop(generator: Any) -> Any:
    @functools.wraps(generator)
    async def call(job: Job[int]) -> Any:
        return generator(job)

    return call


async def test_a_decorator_may_run_a_generator_function_for_its_handler(
    monque: Monque, events: Events
) -> None:
    monque.worker("work", _consumed(_generator))
    await monque.enqueue("work", 7)
    await monque.run_until_idle()

    assert len(events.of("job:complete")) == 1


@pytest.mark.parametrize("generator", [_generator, _async_generator])
@pytest.mark.parametrize("decorator", [_called, _called_on_the_loop])
async def test_a_handler_that_returns_a_generator_has_failed(
    monque: Monque, events: Events, generator: Any, decorator: Any
) -> None:
    """A decorator hides the generator function when it is registered; nothing of it has run."""
    monque.worker("work", decorator(generator))
    await monque.enqueue("work", 7)
    await monque.run_until_idle()
    [failed] = events.of("job:fail")

    assert failed.job.fail_reason.startswith("TypeError: the handler returned a generator")


# Concurrency


async def test_a_worker_never_runs_more_jobs_than_its_concurrency(monque: Monque) -> None:
    """User story 1, scenario 3; FR-005."""
    gauge = Gauge()

    @monque.worker("work", concurrency=3)
    async def work(job: Job[int]) -> None:
        with gauge:
            await asyncio.sleep(0.01)

    await monque.enqueue_many(NewJob(work, n) for n in range(30))
    await monque.run_until_idle()

    assert gauge.most == 3


async def test_without_a_concurrency_of_its_own_a_worker_has_that_of_the_options(
    make_monque: Make,
) -> None:
    """FR-005."""
    monque = make_monque(options=replace(QUICK, worker_concurrency=4))
    gauge = Gauge()

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        with gauge:
            await asyncio.sleep(0.01)

    await monque.open()
    await monque.enqueue_many(NewJob(work, n) for n in range(20))
    await monque.run_until_idle()

    assert gauge.most == 4


async def test_each_worker_has_slots_of_its_own(monque: Monque, events: Events) -> None:
    """A name whose slots are taken does not hold up another one."""
    monque.worker("slow", pause := Pause(), concurrency=1)
    monque.worker("fast", lambda job: None, concurrency=1)
    await monque.enqueue_many([NewJob("slow", 1), NewJob("slow", 2)])
    await monque.enqueue_many(NewJob("fast", n) for n in range(5))
    await monque.start()
    done = await events.wait("job:complete", 5)
    pause.go_on.set()

    assert {event.job.name for event in done} == {"fast"}
    await events.wait("job:complete", 7)


async def test_an_instance_never_runs_more_jobs_than_instance_concurrency(
    make_monque: Make,
) -> None:
    """FR-005."""
    monque = make_monque(options=replace(QUICK, instance_concurrency=3))
    gauge = Gauge()

    async def work(job: Job[int]) -> None:
        with gauge:
            await asyncio.sleep(0.01)

    for name in ("a", "b", "c"):
        monque.worker(name, work, concurrency=5)
    await monque.open()
    await monque.enqueue_many(NewJob(name, n) for n in range(10) for name in ("a", "b", "c"))
    await monque.run_until_idle()

    assert gauge.most == 3


async def test_more_than_five_thousand_handlers_can_run_at_once(make_monque: Make, collection: Any) -> None:
    slots = 5_300
    monque = make_monque(options=replace(QUICK, worker_concurrency=slots))
    all_inside = asyncio.Event()
    gauge = Gauge()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        with gauge:
            if gauge.most == slots:
                all_inside.set()
            await all_inside.wait()

    await monque.open()
    await collection.insert_many(document(name="work") for _ in range(slots))
    try:
        await asyncio.wait_for(monque.run_until_idle(), 30)
    finally:
        all_inside.set()

    assert gauge.most == slots


async def test_blocking_handlers_are_bounded_too(monque: Monque) -> None:
    """FR-005."""
    gauge = Gauge()
    both_inside = threading.Barrier(2, timeout=30)

    def work(job: Job[int]) -> None:
        with gauge:
            both_inside.wait()

    monque.worker("work", work, concurrency=2)
    await monque.enqueue_many(NewJob("work", n) for n in range(10))
    await monque.run_until_idle()

    assert gauge.most == 2


async def test_no_more_jobs_are_claimed_than_there_are_free_slots(monque: Monque, events: Events) -> None:
    """FR-005; a claimed job runs: nothing is taken away from other instances to wait here."""
    work = monque.worker("work", pause := Pause(), concurrency=2)
    await monque.enqueue_many(NewJob(work, n) for n in range(6))
    await monque.start()
    await events.wait("job:start", 2)
    jobs = await monque.database["monque_jobs"].count_documents({"status": "processing"})
    pause.go_on.set()

    assert jobs == 2
    await events.wait("job:complete", 6)


async def test_few_jobs_with_large_payloads_are_prefetched(monque: Monque, events: Events) -> None:
    """Hundreds of small ones may wait here; of large ones no more than memory can well hold."""
    megabyte = "x" * 2**20
    let_go = asyncio.Event()

    @monque.worker("work", concurrency=2)
    async def work(job: Job[list[str]]) -> None:
        if job.data[0] == "slow":
            await let_go.wait()

    await monque.enqueue_many(NewJob(work, ["quick", megabyte]) for _ in range(40))
    await monque.enqueue_many(NewJob(work, ["slow", megabyte]) for _ in range(60))
    await monque.start()
    await events.wait("job:start", 42)
    jobs = await monque.database["monque_jobs"].count_documents({"status": "processing"})
    let_go.set()

    assert 2 <= jobs <= 2 + 16
    await events.wait("job:complete", 100)


# Order


async def test_the_earliest_job_runs_first_across_names(make_monque: Make, collection: Any) -> None:
    """FR-007."""
    monque = await make_monque(options=replace(QUICK, instance_concurrency=1)).open()
    order: list[int] = []

    async def work(job: Job[int]) -> None:
        order.append(job.data)

    for name in ("a", "b", "c"):
        monque.worker(name, work)
    mixed = [n * 7 % 60 for n in range(60)]
    await collection.insert_many(
        document(name="abc"[n % 3], data=n, nextRunAt=ago(seconds=100 - n)) for n in mixed
    )

    await monque.run_until_idle()

    assert order == list(range(60))


async def test_jobs_due_at_the_same_time_run_in_the_order_of_their_ids(
    make_monque: Make, collection: Any
) -> None:
    """FR-007."""
    monque = await make_monque(options=replace(QUICK, instance_concurrency=1)).open()
    order: list[Any] = []
    monque.worker("work", lambda job: order.append(job.id))
    due = ago(seconds=10)
    jobs = [document(nextRunAt=due) for _ in range(6)]
    await collection.insert_many(reversed(jobs))

    await monque.run_until_idle()

    assert order == [job["_id"] for job in jobs]


# Blocking handlers


async def test_a_blocking_handler_runs_in_a_thread(monque: Monque, events: Events) -> None:
    """The loop goes on while it blocks: only the loop can let it go."""
    let_go = threading.Event()
    threads: list[threading.Thread] = []

    def work(job: Job[None]) -> None:
        threads.append(threading.current_thread())
        assert let_go.wait(30)

    monque.worker("work", work)
    await monque.start()
    await monque.enqueue("work")
    await events.wait("job:start")
    let_go.set()
    await events.wait("job:complete")

    assert threads != [threading.current_thread()]


async def test_a_blocking_handler_sees_the_context_variables_of_start(monque: Monque) -> None:
    tenant = contextvars.ContextVar[str]("tenant", default="nobody")
    seen: list[str] = []

    def work(job: Job[None]) -> None:
        seen.append(tenant.get())
        tenant.set("changed by a job")

    monque.worker("work", work, concurrency=1)
    tenant.set("ada")
    await monque.enqueue("work")
    await monque.enqueue("work")
    await monque.run_until_idle()

    assert seen == ["ada", "ada"], "each job has a copy of its own"


async def test_a_failing_blocking_handler_is_a_failed_attempt(monque: Monque, events: Events) -> None:
    def work(job: Job[None]) -> None:
        raise ValueError("no such address")

    monque.worker("work", work)
    await monque.enqueue("work")
    await monque.run_until_idle()
    [failed] = events.of("job:fail")

    assert failed.job.fail_reason == "ValueError: no such address"


class Mailer:
    """Handlers come in many shapes."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def send(self, job: Job[int]) -> None:
        self.seen.append(job.data)

    def send_blocking(self, job: Job[int]) -> None:
        self.seen.append(job.data)

    async def __call__(self, job: Job[int]) -> None:
        self.seen.append(job.data)

    async def send_from(self, sender: str, job: Job[int]) -> None:
        self.seen.append(job.data)


@pytest.mark.parametrize(
    "shape",
    [
        lambda mailer: mailer.send,
        lambda mailer: mailer.send_blocking,
        lambda mailer: mailer,
        lambda mailer: functools.partial(mailer.send_from, "ops"),
        lambda mailer: lambda job: mailer.send(job),
    ],
    ids=["async method", "method", "callable object", "partial", "function that returns an awaitable"],
)
async def test_whatever_can_be_called_with_a_job_is_a_handler(
    monque: Monque, events: Events, shape: Any
) -> None:
    mailer = Mailer()
    monque.worker("send", shape(mailer))

    await monque.enqueue("send", 7)
    await monque.run_until_idle()

    assert mailer.seen == [7]
    assert len(events.of("job:complete")) == 1


# Typed payloads


class Priority(StrEnum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Attachment:
    name: str
    size: Decimal


@dataclass
class Email:
    to: str
    priority: Priority = Priority.LOW
    attachments: list[Attachment] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)
    reference: UUID | None = None
    on: date | None = None


class Order(BaseModel):
    number: int
    lines: list[str] = []
    placed: datetime


class StrictOrder(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int


class Point(TypedDict):
    x: int
    y: int


async def _received(monque: Monque, handler: Any, data: Any) -> Any:
    """What the handler of "typed" is given when *data* is enqueued."""
    events = Events(monque)
    worker = monque.worker("typed", handler)
    returned = await monque.enqueue(worker, data)
    await monque.run_until_idle()
    [completed] = events.of("job:complete")
    assert returned.data is data
    return completed.job.data


async def test_a_dataclass_is_rebuilt_with_everything_in_it(monque: Monque) -> None:
    async def send(job: Job[Email]) -> None:
        assert isinstance(job.data, Email)

    email = Email(
        to="ada@example.org",
        priority=Priority.HIGH,
        attachments=[Attachment("a.pdf", Decimal("1.50"))],
        labels={"x", "y"},
        reference=UUID(int=7),
        on=date(2026, 2, 28),
    )

    assert await _received(monque, send, email) == email


async def test_a_pydantic_model_is_rebuilt(monque: Monque) -> None:
    async def process(job: Job[Order]) -> None:
        assert isinstance(job.data, Order)

    order = Order(number=7, lines=["tea"], placed=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))

    assert await _received(monque, process, order) == order


async def test_a_typed_dict_passes_through(monque: Monque) -> None:
    async def draw(job: Job[Point]) -> None:
        assert type(job.data) is dict

    assert await _received(monque, draw, {"x": 1, "y": 2}) == {"x": 1, "y": 2}


@pytest.mark.parametrize("data", [{"a": [1, {"b": None}]}, ["x", 2], "text", 7, 1.5, True, None, b"bytes"])
async def test_plain_values_pass_through(monque: Monque, data: Any) -> None:
    async def plain(job: Job[Any]) -> None: ...

    assert await _received(monque, plain, data) == data


async def test_without_an_annotation_the_data_passes_through(monque: Monque) -> None:
    async def plain(job): ...

    assert await _received(monque, plain, {"to": "ada"}) == {"to": "ada"}


async def test_a_model_may_be_enqueued_as_a_plain_dict(monque: Monque) -> None:
    seen = []

    @monque.worker("send")
    async def send(job: Job[Email]) -> None:
        seen.append(job.data)

    await monque.enqueue("send", {"to": "ada@example.org", "priority": "high"})
    await monque.run_until_idle()

    assert seen == [Email(to="ada@example.org", priority=Priority.HIGH)]


async def test_extra_keys_are_ignored_unless_the_model_forbids_them(
    monque: Monque, events: Events, collection: Any
) -> None:
    seen = []

    @monque.worker("lenient")
    async def lenient(job: Job[Email]) -> None:
        seen.append(job.data)

    @monque.worker("strict")
    async def strict(job: Job[StrictOrder]) -> None:
        seen.append(job.data)

    await collection.insert_one(document(name="lenient", data={"to": "ada", "colour": "red"}))
    await collection.insert_one(document(name="strict", data={"number": 1, "colour": "red"}))
    await monque.run_until_idle()
    [failed] = events.of("job:fail")

    assert seen == [Email(to="ada")]
    assert failed.job.name == "strict"
    assert "colour" in failed.job.fail_reason


async def test_a_payload_that_does_not_fit_is_a_failed_attempt_with_a_readable_reason(
    monque: Monque, events: Events, collection: Any
) -> None:
    called = []

    @monque.worker("send")
    async def send(job: Job[Email]) -> None:
        called.append(job)

    stored = document(name="send", data={"priority": "urgent"})
    await collection.insert_one(stored)
    await monque.run_until_idle()
    [failed] = events.of("job:fail")
    after = await monque.get_job(stored["_id"])

    assert not called
    assert isinstance(failed.error, PayloadError)
    assert failed.will_retry
    assert after is not None
    assert (after.status, after.fail_count) == (JobStatus.PENDING, 1)
    assert after.fail_reason is not None
    assert after.fail_reason.startswith("PayloadError: the payload of 'send' does not fit Email: ")
    assert "data.to" in after.fail_reason
    assert "'urgent'" in after.fail_reason
    assert "pydantic" not in after.fail_reason


async def test_a_payload_that_does_not_fit_its_worker_is_refused_before_it_is_stored(
    monque: Monque, collection: Any
) -> None:
    @monque.worker("send")
    async def send(job: Job[Email]) -> None: ...

    with pytest.raises(PayloadError, match=r"'send'.*to") as refused:
        await monque.enqueue("send", {"priority": "low"})

    assert refused.value.job_name == "send"
    assert await collection.count_documents({}) == 0


# Failures


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text to be had")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad address"), "ValueError: bad address"),
        (KeyError("user"), "KeyError: 'user'"),
        (RuntimeError(), "RuntimeError"),
        (ValueError("$name and Ünïcode ✓"), "ValueError: $name and Ünïcode ✓"),
        (ValueError("lone \ud800 surrogate"), "ValueError: lone ? surrogate"),
        (OddError(), "OddError: (its message cannot be shown)"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(3), "SystemExit: 3"),
        (StopAsyncIteration(), "StopAsyncIteration"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
async def test_the_error_of_a_handler_is_kept_as_type_and_text(
    monque: Monque, events: Events, error: BaseException, reason: str, blocking: bool
) -> None:
    """FR-010; edge case: an unhandled exception, also SystemExit and CancelledError, fails the job alone."""

    def fail(job: Job[None]) -> None:
        raise error

    async def fail_on_the_loop(job: Job[None]) -> None:
        raise error

    monque.worker("fail", fail if blocking else fail_on_the_loop)
    monque.worker("other", lambda job: None)
    await monque.start()
    job = await monque.enqueue("fail")
    await events.wait("job:fail")
    await monque.enqueue("other")
    await events.wait("job:complete")
    after = await monque.get_job(job.id)

    assert after is not None
    assert after.fail_reason == reason
    assert after.fail_count == 1


async def test_the_reason_of_a_task_group_names_the_errors_of_its_tasks(monque: Monque) -> None:
    async def look_up(user: str) -> None:
        raise KeyError(user)

    @monque.worker("fail")
    async def fail(job: Job[None]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(look_up("ada"))
            group.create_task(look_up("grace"))

    await monque.enqueue(fail)
    await monque.run_until_idle()
    [job] = await monque.get_jobs()

    assert job.fail_reason == (
        "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): "
        "KeyError: 'ada'; KeyError: 'grace'"
    )


async def test_a_very_long_message_is_cut(monque: Monque, events: Events) -> None:
    @monque.worker("fail")
    async def fail(job: Job[None]) -> None:
        raise ValueError("x" * 20_000_000)

    await monque.enqueue(fail)
    await monque.run_until_idle()
    [failed] = events.of("job:fail")

    assert failed.job.fail_reason.startswith("ValueError: xxx")
    assert len(failed.job.fail_reason) < 100_000


async def test_a_failing_job_does_not_leak_its_slot(monque: Monque, events: Events) -> None:
    ran = []

    @monque.worker("work", concurrency=1)
    async def work(job: Job[int]) -> None:
        ran.append(job.data)
        if job.data < 5:
            raise SystemExit

    await monque.start()
    await monque.enqueue_many(NewJob(work, n) for n in range(6))
    await events.wait("job:complete")

    await eventually(lambda: _has_all(ran, range(6)))


def _has_all(ran: list[int], wanted: range) -> None:
    assert set(ran) >= set(wanted)


def _polling_every_minute() -> Options:
    minute = timedelta(minutes=1)
    return replace(QUICK, poll_interval=minute, safety_poll_interval=minute)
