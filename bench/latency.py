"""How soon jobs start."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import plain
from bench.report import Result
from bench.stage import Stage
from bench.timing import PERCENTILES, percentiles
from monque import Job, JobCompleted, Monque, NewJob, Options


async def pick_up(stage: Stage) -> list[Result]:
    """From calling `enqueue` to the handler's first line, on idle instances."""
    rounds, count = 5, stage.size(40, 200)
    here, elsewhere, same, other = list[float](), list[float](), list[float](), list[float]()
    async with Monque(stage.database) as worker, Monque(stage.database) as producer:
        for _ in range(rounds):  # in turns: the mood of the machine changes
            here += await plain.insert_and_claim(stage.database, count)
            same += await picked_up(worker, by=worker, count=count)
            elsewhere += await plain.insert_event_and_claim(stage.database, count)
            other += await picked_up(worker, by=producer, count=count)
    polled = await _polled(stage)
    p50, _, p99 = percentiles(other)
    return [
        *_results("pick-up, same instance", same, here, "one insert and one claim", at_most=1.5),
        *_results("pick-up, other instance", other, elsewhere, "insert, change event, claim", at_most=1.5),
        _milliseconds("pick-up, other instance, p99", p99, p50, "its p50", at_most=5),
        _milliseconds("pick-up, polling each 100 ms, p50", percentiles(polled)[0], 0.1, "the poll interval"),
    ]


async def steady_load(stage: Stage) -> list[Result]:
    """The same while 500 jobs a second come in, from another instance."""
    rate, seconds = 500, stage.size(5, 20)
    waits: list[float] = []
    async with Monque(stage.database) as worker, Monque(stage.database) as producer:

        @worker.worker("ping")
        async def ping(job: Job[float]) -> None:
            waits.append(time.perf_counter() - job.data)

        await worker.start()
        sending = []
        began = time.perf_counter()
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            sending.append(asyncio.ensure_future(producer.enqueue("ping", time.perf_counter())))
        await asyncio.gather(*sending)
        while len(waits) < rate * seconds:
            await asyncio.sleep(0.01)
    p50, _, p99 = percentiles(waits)
    return [_milliseconds(f"pick-up at {rate} jobs/s, p99", p99, p50, "its p50")]


async def lateness(stage: Stage) -> list[Result]:
    """How late jobs with a time start, by the clock of this machine, which is the server's."""
    count = stage.size(50, 300)
    late: list[float] = []
    async with Monque(stage.database) as monque:

        @monque.worker("timed", concurrency=100)
        async def timed(job: Job[Any]) -> None:
            late.append((datetime.now(UTC) - job.next_run_at).total_seconds())

        await monque.start()
        start = datetime.now(UTC) + timedelta(seconds=1)
        jobs: list[NewJob[None]] = [
            NewJob("timed", run_at=start + timedelta(milliseconds=37 * number)) for number in range(count)
        ]
        await monque.enqueue_many(jobs)
        while len(late) < count:
            await asyncio.sleep(0.05)
    p50, _, p99 = percentiles(late)
    return [
        _milliseconds("lateness of timed jobs, p50", p50, 0.1, "100 ms", at_most=1),
        _milliseconds("lateness of timed jobs, p99", p99, 0.1, "100 ms", at_most=1),
    ]


async def picked_up(worker: Monque, *, by: Monque, count: int) -> list[float]:
    """Seconds from calling `enqueue` to the handler's first line, for *count* jobs one after another."""
    times: list[float] = []
    idle = asyncio.Event()
    sent = 0.0

    @worker.worker("ping", replace=True)
    async def ping(_job: Job[None]) -> None:
        times.append(time.perf_counter() - sent)

    def note_idle(_event: JobCompleted) -> None:
        idle.set()

    worker.on(JobCompleted, note_idle)
    await worker.start()
    for number in range(count + 10):
        idle.clear()
        sent = time.perf_counter()
        sending = asyncio.ensure_future(by.enqueue("ping"))
        await idle.wait()
        await sending
        if number == 9:
            times.clear()  # connections and the change stream are warm now
    await worker.stop()
    worker.off(JobCompleted, note_idle)
    return times


async def _polled(stage: Stage) -> list[float]:
    options = Options(collection="polled", change_streams=False, poll_interval=timedelta(milliseconds=100))
    async with (
        Monque(stage.database, options=options) as worker,
        Monque(stage.database, options=options) as producer,
    ):
        return await picked_up(worker, by=producer, count=stage.size(30, 100))


def _results(
    name: str, times: list[float], raw_times: list[float], raw_name: str, *, at_most: float
) -> list[Result]:
    bounds = [at_most, None, None]  # the median is comparable; the tails of two short series are not
    return [
        _milliseconds(f"{name}, p{percent}", value, limit, raw_name, at_most=bound)
        for percent, value, limit, bound in zip(
            PERCENTILES, percentiles(times), percentiles(raw_times), bounds, strict=True
        )
    ]


def _milliseconds(name: str, value: float, raw: float, raw_name: str, at_most: float | None = None) -> Result:
    return Result(
        name=name, value=value * 1000, unit="ms", raw=raw * 1000, raw_name=raw_name, at_most=at_most
    )
