"""Handlers that fail: waits that double, and an end to trying.

    .venv/bin/python examples/errors_and_retries.py

Runs on the server named in MONQUE_URI, or on an embedded MongoDB.
"""

import asyncio
import logging
from datetime import timedelta

from monque import Job, JobCompleted, JobFailed, Monque, Options

# Attempts in all, and the unit of the waits: 2, 4, 8, ... times 100 ms.
monque = Monque(options=Options(max_retries=3, base_retry_interval=timedelta(milliseconds=100)))

# Failures are told below. Monque also logs the one that ends a job, with its traceback.
logging.getLogger("monque").setLevel(logging.CRITICAL)


@monque.worker("example.charge-card")
async def charge_card(job: Job[dict[str, int]]) -> None:
    print(f"charging order {job.data['order']}, attempt {job.attempt}")
    if job.data["order"] == 13:
        raise ValueError("the card is stolen")
    if job.attempt == 1:
        raise TimeoutError("the bank does not answer")


async def main() -> None:
    ended = asyncio.Semaphore(0)

    @monque.on(JobFailed)
    def tell(event: JobFailed) -> None:
        if event.will_retry and event.job.next_run_at is not None:
            wait = event.job.next_run_at - event.job.updated_at
            print(f"  failed: {event.job.fail_reason}; again in {wait.total_seconds():.1f} s")
        else:
            print(f"  failed for good after {event.job.fail_count} attempts: {event.job.fail_reason}")
            ended.release()

    @monque.on(JobCompleted)
    def celebrate(event: JobCompleted) -> None:
        print(f"  completed at attempt {event.job.attempt}")
        ended.release()

    async with monque:
        await monque.start()
        for order in (42, 13):
            await monque.enqueue(charge_card, {"order": order})
            await ended.acquire()


if __name__ == "__main__":
    asyncio.run(main())
