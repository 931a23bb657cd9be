"""What Monque offers to the tests of handlers with durable steps."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from bson import ObjectId

from monque import (
    ConfigurationError,
    Job,
    JobStatus,
    Monque,
    NewJob,
    StepError,
    WaitTimeoutError,
    testing,
)
from monque.testing import JobCalls, rehearse, run_handler, run_until_idle

DAY = timedelta(days=1)


@dataclass
class Payment:
    id: str
    amount: Decimal


class Shop:
    """A handler with steps, and everything that its steps did."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.between = 0

    async def charge(self, order: str) -> Payment:
        self.did.append(f"charge {order}")
        return Payment(f"pay-{order}", Decimal("9.90"))

    def pack(self, order: str) -> int:
        self.did.append(f"pack {order}")
        return len(order)

    async def fulfil(self, job: Job[str]) -> dict[str, Any]:
        self.between += 1
        payment = await job.step("charge", self.charge, job.data)
        weight = await job.step("pack", self.pack, job.data)
        await job.sleep("cool-off", 30 * DAY)
        try:
            by = await job.receive("picked-up", str, timeout=7 * DAY)
        except WaitTimeoutError:
            by = "nobody"
        return {"payment": payment.id, "cents": payment.amount * 100, "weight": weight, "by": by}


DONE = {"payment": "pay-a7", "cents": Decimal("990.00"), "weight": 2, "by": "DHL"}


async def test_steps_run_and_their_values_come_back_as_they_are_stored() -> None:
    shop, calls = Shop(), JobCalls()

    assert await run_handler(shop.fulfil, "a7", signals=[("picked-up", "DHL")], calls=calls) == DONE
    assert shop.did == ["charge a7", "pack a7"]
    assert [(step.name, step.kind, step.value) for step in calls.steps] == [
        ("charge", "step", {"id": "pay-a7", "amount": "9.90"}),
        ("pack", "step", 2),
        ("cool-off", "sleep", None),
        ("picked-up", "signal", "DHL"),
    ]


async def test_a_step_whose_value_is_given_does_not_run() -> None:
    shop, calls = Shop(), JobCalls()
    given = {"charge": Payment("pay-old", Decimal(1)), "cool-off": None, "picked-up": "UPS"}

    result = await run_handler(shop.fulfil, "a7", steps=given, calls=calls)

    assert (result["payment"], result["by"]) == ("pay-old", "UPS")
    assert shop.did == ["pack a7"]
    assert [step.name for step in calls.steps] == ["pack"]


async def test_a_wait_without_its_signal_ends_with_its_timeout_or_names_the_signal() -> None:
    async def wait(job: Job[timedelta | None]) -> Any:
        return await job.receive("go", timeout=job.data)

    assert (await run_handler(Shop().fulfil, "a7"))["by"] == "nobody"
    assert await run_handler(wait, DAY, signals=[("stop", 1), ("go", None)]) is None
    with pytest.raises(WaitTimeoutError):
        await run_handler(wait, DAY, signals=[("stop", 1)])
    with pytest.raises(AssertionError, match=r"waits for the signal 'go' .* signals=\[\('go', ...\)\]"):
        await run_handler(wait)


async def test_signals_of_one_name_are_received_in_order() -> None:
    async def add(job: Job[None]) -> list[int]:
        return [await job.receive("number", int, name=f"number-{place}") for place in range(2)]

    assert await run_handler(add, signals=[("number", 5), ("number", 3)]) == [5, 3]


async def test_a_transaction_needs_its_value() -> None:
    async def book(session: Any, order: str) -> Payment:
        raise AssertionError("there is no database")

    async def handle(job: Job[str]) -> Payment:
        return await job.transaction("book", book, job.data)

    payment = Payment("p", Decimal("1.5"))
    assert await run_handler(handle, "a7", steps={"book": payment}) == payment
    with pytest.raises(
        AssertionError, match=r"transaction 'book' needs a database: .* steps=\{'book': ...\}"
    ):
        await run_handler(handle, "a7")


async def _nothing() -> None: ...


async def _twice(job: Job[None]) -> None:
    await job.step("a", _nothing)
    await job.step("a", _nothing)


async def _inside(job: Job[None]) -> None:
    async def outer() -> None:
        await job.sleep("b", DAY)

    await job.step("a", outer)


async def _completed_inside(job: Job[None]) -> None:
    async def complete(session: Any = None) -> None:
        await job.complete_in(session)

    await job.step("a", complete)


def _plain(job: Job[None]) -> None:
    job.step("a", _nothing)


@pytest.mark.parametrize(
    "handler", [_twice, _inside, _completed_inside, _plain], ids=lambda handler: handler.__name__
)
async def test_what_a_worker_refuses_is_refused(handler: Any) -> None:
    with pytest.raises(StepError):
        await run_handler(handler)


@pytest.mark.parametrize(
    "wait",
    [
        lambda job: job.sleep("nap", -DAY),
        lambda job: job.sleep("nap", 5),
        lambda job: job.sleep("nap", until=datetime(2026, 1, 1)),  # noqa: DTZ001
        lambda job: job.sleep("nap"),
        lambda job: job.receive("go", timeout=5),
        lambda job: job.run_jobs("below", [], timeout=-DAY),
    ],
)
async def test_a_wrong_time_is_refused_as_in_a_worker(wait: Any, monque: Monque) -> None:
    async def handle(job: Job[None]) -> None:
        await wait(job)

    with pytest.raises(ConfigurationError) as refused:
        await run_handler(handle)
    monque.worker("work", handle, max_attempts=1)
    job = await monque.enqueue("work")
    await monque.run_until_idle()
    failed = await monque.get_job(job)

    assert failed is not None
    assert failed.fail_reason == f"ConfigurationError: {refused.value}"


async def test_a_handler_that_runs_no_jobs_gets_none() -> None:
    async def handle(job: Job[None]) -> Any:
        return await job.run_jobs("below", [])

    assert await run_handler(handle) == []


async def test_a_name_whose_function_raised_may_be_used_again() -> None:
    async def fail_once(number: int) -> int:
        if number == 0:
            raise ValueError
        return number

    async def handle(job: Job[None]) -> int:
        try:
            return await job.step("a", fail_once, 0)
        except ValueError:
            return await job.step("a", fail_once, 1)

    assert await run_handler(handle) == 1


async def test_what_a_worker_would_decide_about_a_handler_with_steps() -> None:
    rehearsal = await rehearse(Shop().fulfil, "a7", signals=[("picked-up", "DHL")], steps={"pack": 3})

    assert (rehearsal.outcome, [step.name for step in rehearsal.calls.steps]) == (
        "completed",
        ["charge", "cool-off", "picked-up"],
    )

    async def wait(job: Job[None]) -> Any:
        return await job.receive("go", timeout=DAY)

    late = await rehearse(wait)
    assert (late.outcome, late.delay) == ("failed", None)  # the next run would get the same answer


async def test_a_call_that_nobody_awaits_is_an_error_that_names_it() -> None:
    async def handle(job: Job[None]) -> None:
        await job.step("before", asyncio.sleep, 0)
        job.step("charge", asyncio.sleep, 0)

    with pytest.raises(StepError, match="step 'charge' was never awaited"):
        await run_handler(handle)


async def test_wrong_steps_and_signals_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="steps"):
        await run_handler(_twice, steps=["a"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="signals"):
        await run_handler(_twice, signals=["go"])  # type: ignore[list-item]


class TestReplay:
    @pytest.fixture(autouse=True)
    def replays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As the fixture `replay` does, which pytest has where the plugin is loaded."""
        monkeypatch.setattr(testing, "_replays", True)

    async def test_each_step_runs_once_and_the_code_between_again_from_every_step(self) -> None:
        shop, calls = Shop(), JobCalls()

        assert await run_handler(shop.fulfil, "a7", signals=[("picked-up", "DHL")], calls=calls) == DONE
        assert shop.did == ["charge a7", "pack a7"]
        assert len(calls.steps) == 4
        assert shop.between == 6  # behind each of four steps, to the end, and once more

    async def test_a_handler_without_steps_runs_once(self) -> None:
        async def handle(job: Job[list[int]]) -> None:
            seen.append(job.data)

        seen: list[list[int]] = []
        await run_handler(handle, [1])

        assert seen == [[1]]

    async def test_what_differs_from_run_to_run_is_found(self) -> None:
        async def handle(job: Job[None]) -> str:
            await job.step("a", _nothing)
            return str(uuid.uuid4())

        with pytest.raises(
            AssertionError, match=r"ran again behind its steps \['a'\] and did something else"
        ):
            await run_handler(handle)

    async def test_a_step_that_needs_what_an_earlier_one_left_in_memory_is_found(self) -> None:
        """No crash and no wait between the two would show it."""

        async def connect(to: dict[str, str]) -> None:
            to["url"] = "here"

        async def use(connection: dict[str, str]) -> str:
            return connection["url"]

        async def handle(job: Job[None]) -> str:
            opened = dict[str, str]()
            await job.step("connect", connect, opened)
            return await job.step("use", use, opened)

        with pytest.raises(KeyError, match="url"):
            await run_handler(handle)

    async def test_steps_in_one_gather_run_once_each(self) -> None:
        did: list[int] = []

        async def fetch(page: int) -> int:
            await asyncio.sleep(page / 1000)
            did.append(page)
            return page

        async def handle(job: Job[None]) -> list[int]:
            return list(await asyncio.gather(*(job.step(f"page-{n}", fetch, n) for n in range(3))))

        assert await run_handler(handle) == [0, 1, 2]
        assert did == [0, 1, 2]

    async def test_a_handler_that_changes_its_data_gets_it_anew(self) -> None:
        async def handle(job: Job[list[int]]) -> int:
            job.data.append(1)
            await job.step("a", _nothing)
            return len(job.data)

        assert await run_handler(handle, [0]) == 2

    async def test_an_error_of_a_step_is_raised(self) -> None:
        async def fail() -> None:
            raise ValueError("no")

        async def handle(job: Job[None]) -> None:
            await job.step("a", _nothing)
            await job.step("b", fail)

        with pytest.raises(ValueError, match="no"):
            await run_handler(handle)


class TestRunUntilIdle:
    async def test_a_month_of_sleeps_takes_milliseconds(self, monque: Monque) -> None:
        shop, began = Shop(), time.monotonic()
        worker = monque.worker("fulfil", shop.fulfil, store_result=True)
        job = await monque.enqueue(worker, "a7")

        await run_until_idle(monque)
        sleeping = await monque.get_job(job.id)
        assert sleeping is not None
        assert (sleeping.status, sleeping.waits_for is not None) == (JobStatus.PENDING, True)
        await monque.signal(job, "picked-up", "DHL")
        await run_until_idle(monque, skip_sleeps=True)

        assert (await monque.result_of(job))["by"] == "DHL"
        assert shop.did == ["charge a7", "pack a7"]
        assert time.monotonic() - began < 10

    async def test_sleeps_end_in_their_order_and_timeouts_when_nothing_else_can_run(
        self, monque: Monque
    ) -> None:
        order: list[str] = []

        async def sleep(job: Job[int]) -> None:
            await job.sleep("rest", job.data * DAY)
            order.append(f"slept {job.data}")

        async def wait(job: Job[int]) -> None:
            try:
                await job.receive("go", timeout=DAY)
            except WaitTimeoutError:
                order.append("timed out")

        monque.worker("sleep", sleep)
        monque.worker("wait", wait)
        await monque.enqueue("wait", 0)
        for days in (3, 2):
            await monque.enqueue("sleep", days)
        await run_until_idle(monque, skip_sleeps=True)

        assert order == ["slept 2", "slept 3", "timed out"]

    async def test_other_waits_stay_and_it_ends(self, monque: Monque) -> None:
        """Of names that are not served here, of paused names, and for a signal without a timeout."""

        async def sleep(job: Job[None]) -> None:
            await job.sleep("rest", DAY)

        async def wait(job: Job[None]) -> None:
            await job.receive("go")

        for name in ("elsewhere", "paused"):
            monque.worker(name, sleep)
            await monque.enqueue(name)
        monque.worker("wait", wait)
        await monque.enqueue("wait")
        await run_until_idle(monque)
        monque.workers.restrict(excluding=["elsewhere"])
        await monque.pause("paused")
        await run_until_idle(monque, skip_sleeps=True)

        assert {job.status for job in await monque.get_jobs()} == {JobStatus.PENDING}
        [elsewhere] = await monque.get_jobs(name="elsewhere")
        assert elsewhere.waits_for is not None


def child(status: JobStatus = JobStatus.COMPLETED, **fields: Any) -> Job[Any]:
    now = datetime.now(UTC)
    known = {"id": ObjectId(), "name": "pack", "data": None, "next_run_at": now}
    return Job(**{**known, "status": status, "created_at": now, "updated_at": now, **fields})


async def packed(job: Job[int]) -> list[Any]:
    calls = [NewJob("pack", number) for number in range(job.data)]
    parcels = await job.run_jobs("pack", calls, timeout=DAY)
    return [None if each is None else (each.status.value, each.result) for each in parcels]


async def test_jobs_come_back_as_they_are_given() -> None:
    given, calls = [child(result=7), None, child(JobStatus.FAILED)], JobCalls()

    result = await run_handler(packed, 3, jobs={"pack": given}, calls=calls)

    assert result == [("completed", 7), None, ("failed", None)]
    assert [(step.name, step.kind, step.value) for step in calls.steps] == [("pack", "jobs", "c-f")]


@pytest.mark.usefixtures("replay")
async def test_a_replay_finds_the_same_jobs_again() -> None:
    assert await run_handler(packed, 1, jobs={"pack": [child(result=7)]}) == [("completed", 7)]


async def test_jobs_that_are_not_given_do_not_end_in_time() -> None:
    with pytest.raises(WaitTimeoutError, match="some jobs of 'pack' have not ended"):
        await run_handler(packed, 1)


async def test_jobs_that_cannot_be_stored_and_those_that_are_not_given_are_errors() -> None:
    async def waits(job: Job[Any]) -> None:
        await job.run_jobs("pack", [NewJob("pack", job.data)])

    async def wrong(job: Job[None]) -> None:
        await job.run_jobs("pack", ["pack"])  # type: ignore[list-item]

    with pytest.raises(AssertionError, match="runs 1 jobs in 'pack': give them as they end"):
        await run_handler(waits, 1)
    with pytest.raises(AssertionError, match="runs 1 jobs in 'pack'"):
        await run_handler(waits, 1, jobs={"pack": [None, None]})
    with pytest.raises(ConfigurationError, match="jobs is a mapping"):
        await run_handler(waits, 1, jobs=[None])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="takes NewJob"):
        await run_handler(wrong, jobs={"pack": [None]})
