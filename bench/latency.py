"""How soon jobs start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from bench import plain
from bench.processes import Process
from bench.scenario import Round, Subject
from bench.stage import Sample, Stage
from monque import Job, JobCompleted, Monque, NewJob, Options

By = Literal["same instance", "other instance", "other process"]
Send = Callable[[], Awaitable[object]]

# The first jobs after a start open connections and the change stream. Five are enough on an idle machine;
# twenty take longer and tell the same.
_WARM = 10


def pick_up(*, count: int, by: By, future: int = 0, **options: Any) -> Subject:
    """From calling `enqueue` to the handler's first line, job after job, beside *future* jobs of the name."""

    @asynccontextmanager
    async def subject(stage: Stage) -> AsyncIterator[Round]:
        chosen = Options(**options)
        in_a_year = datetime.now(UTC) + timedelta(days=365)
        await plain.fill(stage, chosen.collection, future, nextRunAt=in_a_year)
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(Monque(stage.database, options=chosen))
            send, processes = await _sender(stack, stage, worker, by, chosen)

            async def measure() -> Sample:
                async with _Picking(worker) as picking:
                    await picking.times(send, _WARM)
                    with stage.costs(count, processes=processes) as costs:
                        times = await picking.times(send, count)
                return costs.times(times)

            yield measure

    return subject


async def _sender(
    stack: AsyncExitStack, stage: Stage, worker: Monque, by: By, options: Options
) -> tuple[Send, list[int]]:
    """What stores a job with the time of the call, and the processes that it takes."""
    if by == "other process":
        process = await stack.enter_async_context(Process("bench.producer", stage.uri))

        async def send() -> None:
            process.tell("one")

        return send, [process.pid]
    same = by == "same instance"
    producer = worker if same else await stack.enter_async_context(Monque(stage.database, options=options))
    return lambda: producer.enqueue("work", time.monotonic()), []


class _Picking:
    """A started worker that notes how long each job took to reach its handler."""

    def __init__(self, worker: Monque) -> None:
        self._worker = worker
        self._times: list[float] = []
        self._idle = asyncio.Event()

    async def __aenter__(self) -> _Picking:
        @self._worker.worker("work", replace=True)
        async def work(job: Job[float]) -> None:
            self._times.append(time.monotonic() - job.data)

        self._worker.on(JobCompleted, self._note_idle)
        await self._worker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._worker.stop()
        self._worker.off(JobCompleted, self._note_idle)

    async def times(self, send: Send, count: int) -> list[float]:
        """Seconds from the call to the handler, for *count* jobs one after another."""
        self._times.clear()
        for _ in range(count):
            self._idle.clear()
            sending = asyncio.ensure_future(send())
            await self._idle.wait()
            await sending
        return list(self._times)

    def _note_idle(self, _event: JobCompleted) -> None:
        self._idle.set()


async def steady_load(stage: Stage, count: int, *, rate: int) -> Sample:
    """The same while *rate* jobs a second come in, from another instance."""
    times: list[float] = []
    all_of_them = asyncio.Event()
    async with Monque(stage.database) as worker, Monque(stage.database) as producer:

        @worker.worker("work")
        async def work(job: Job[float]) -> None:
            times.append(time.monotonic() - job.data)
            if len(times) == count:
                all_of_them.set()

        await worker.start()
        with stage.costs(count) as costs:
            await _send_at(rate, lambda: producer.enqueue("work", time.monotonic()), count)
            await all_of_them.wait()
    return costs.times(times)


async def _send_at(rate: int, send: Send, count: int) -> None:
    began = time.perf_counter()
    sending = []
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        sending.append(asyncio.ensure_future(send()))
    await asyncio.gather(*sending)


async def lateness(stage: Stage, count: int) -> Sample:
    """How late jobs with a time start, by the clock of this machine, which is the server's."""
    late: list[float] = []
    all_of_them = asyncio.Event()
    async with Monque(stage.database) as monque:

        @monque.worker("timed", concurrency=100)
        async def timed(job: Job[Any]) -> None:
            assert job.next_run_at is not None
            late.append((datetime.now(UTC) - job.next_run_at).total_seconds())
            if len(late) == count:
                all_of_them.set()

        await monque.start()
        start = datetime.now(UTC) + timedelta(seconds=1)
        times = [start + timedelta(milliseconds=37 * number) for number in range(count)]
        with stage.costs(count) as costs:
            await monque.enqueue_many([NewJob("timed", run_at=run_at) for run_at in times])
            await all_of_them.wait()
    return costs.times(late)
