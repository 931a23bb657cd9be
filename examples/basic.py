"""Enqueue a few jobs, process them, read one back.

    .venv/bin/python examples/basic.py

Runs on the server named in MONQUE_URI, or on an embedded MongoDB.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from monque import Job, JobCompleted, Monque


@dataclass
class Email:
    to: str
    subject: str


monque = Monque()


@monque.worker("example.send-email", concurrency=3)
async def send_email(job: Job[Email]) -> None:
    await asyncio.sleep(0.1)  # the mail server takes its time
    print(f"sent {job.data.subject!r} to {job.data.to}")


@monque.on(JobCompleted)
def log(event: JobCompleted) -> None:
    print(f"  {event.job.name} {event.job.id} took {event.duration.total_seconds():.2f} s")


async def main() -> None:
    async with monque:
        first = await monque.enqueue(send_email, Email("ada@example.org", "Welcome"))
        await monque.enqueue(send_email, Email("grace@example.org", "Welcome"))
        # By name: the program that enqueues need not be the one that has the worker.
        await monque.enqueue("example.send-email", {"to": "edsger@example.org", "subject": "Welcome"})
        later = await monque.enqueue(
            send_email, Email("ada@example.org", "Later"), delay=timedelta(seconds=1)
        )

        # A service would call run(), which works until SIGINT or SIGTERM.
        await monque.start()
        await completed(later)
        await monque.stop()

        job = await monque.get_job(first.id)
        print(f"the first job is {job.status if job else 'gone'}")


async def completed(job: Job[Email]) -> None:
    """Wait for the event that tells the end of this job."""
    done = asyncio.Event()

    @monque.on(JobCompleted)
    def notice(event: JobCompleted) -> None:
        if event.job.id == job.id:
            done.set()

    await done.wait()


if __name__ == "__main__":
    asyncio.run(main())
