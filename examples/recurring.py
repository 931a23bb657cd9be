"""Recurring jobs: declared at every start of the program, stored once.

    .venv/bin/python examples/recurring.py

Runs on the server named in MONQUE_URI, or on an embedded MongoDB. The schedules stay stored, as they would
in a real program; nobody runs them while no worker for their name is running.
"""

import asyncio
from datetime import datetime
from zoneinfo import ZoneInfo

from monque import InvalidCronError, Job, Monque

monque = Monque()


@monque.worker("example.report")
async def report(job: Job[str]) -> None:
    print(f"writing the {job.data} report")


def in_berlin(schedule: Job[str]) -> datetime:
    if schedule.next_run_at is None:
        raise ValueError("only a parked job has no time")
    return schedule.next_run_at.astimezone(ZoneInfo("Europe/Berlin"))


async def main() -> None:
    async with monque:
        daily = await monque.schedule("0 9 * * MON-FRI", report, "daily", timezone="Europe/Berlin")
        print(f"next daily report: {in_berlin(daily):%A %H:%M} in Berlin, {daily.next_run_at:%H:%M} UTC")

        # The next start of the program says the same again, and nothing changes.
        again = await monque.schedule("0 9 * * MON-FRI", report, "daily", timezone="Europe/Berlin")
        print(f"still one schedule: {again.id == daily.id}")

        # A later version of the program says something else: the schedule follows.
        earlier = await monque.schedule("30 7 * * MON-FRI", report, "daily", timezone="Europe/Berlin")
        print(f"moved to {in_berlin(earlier):%H:%M}, the same job: {earlier.id == daily.id}")

        # A second schedule of the same job name needs a key of its own.
        weekly = await monque.schedule("@weekly", report, "weekly", unique_key="weekly")
        print(f"next weekly report: {weekly.next_run_at:%A %d %B %Y, %H:%M} UTC")

        try:
            await monque.schedule("61 * * * *", report, "never")
        except InvalidCronError as error:
            print(f"refused: {error}")

        # The same work, once and right now.
        await monque.now(report, "unscheduled")
        await monque.run_until_idle()


if __name__ == "__main__":
    asyncio.run(main())
