"""At most one active job a key: parallel requests for the same work store it once.

    .venv/bin/python examples/unique_jobs.py

Runs on the server named in MONQUE_URI, or on an embedded MongoDB.
"""

import asyncio

from monque import Job, Monque

monque = Monque()


@monque.worker("example.sync-user")
async def sync_user(job: Job[int]) -> None:
    print(f"syncing user {job.data}")


async def main() -> None:
    async with monque:
        # Ten web requests at the same moment want the same user synced.
        jobs = await asyncio.gather(
            *(monque.enqueue(sync_user, 123, unique_key="user-123") for _ in range(10))
        )
        print(f"ten calls, {len({job.id for job in jobs})} job")

        # Keys belong to a job name, and other keys are other jobs.
        other = await monque.enqueue(sync_user, 456, unique_key="user-456")
        print(f"another key, another job: {other.id != jobs[0].id}")

        await monque.run_until_idle()

        # Completed jobs hold no key: the same work may be asked for again.
        again = await monque.enqueue(sync_user, 123, unique_key="user-123")
        print(f"after it was completed, a new one: {again.id != jobs[0].id}")
        await monque.run_until_idle()


if __name__ == "__main__":
    asyncio.run(main())
