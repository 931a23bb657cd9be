"""A lock by key: of each account one task at a time, of different accounts many."""

import asyncio
import os
from collections import Counter

from monque import Job, Limit, Monque, NewJob

monque = Monque(os.environ["MONQUE_URI"])
running: Counter[str] = Counter()
most: Counter[str] = Counter()


@monque.worker("book", limit=Limit(1, by="account"))
async def book(job: Job[dict[str, str]]) -> None:
    account = job.data["account"]
    running[account] += 1
    most[account] = max(most[account], running[account])
    await asyncio.sleep(0)
    running[account] -= 1


async def main() -> object:
    async with monque:
        await monque.start()
        booked = [NewJob(book, {"account": account}) for _ in range(5) for account in ("ada", "grace")]
        jobs = await monque.enqueue_many(booked)
        await asyncio.gather(*(monque.wait_for(job) for job in jobs))
        return dict(most)


EXPECTED = {"ada": 1, "grace": 1}

ORIGINAL = """
import redis
from celery import Celery, group

app = Celery("bank", broker="redis://", backend="redis://")
locks = redis.Redis()
running, most = {}, {}

@app.task(bind=True, max_retries=None)
def book(self, account, amount):
    lock = locks.lock(f"account-{account}", timeout=60)
    if not lock.acquire(blocking=False):
        raise self.retry(countdown=0.1)
    try:
        running[account] = running.get(account, 0) + 1
        most[account] = max(most.get(account, 0), running[account])
        running[account] -= 1
    finally:
        lock.release()

group(book.s(account, n) for n in range(5) for account in ("ada", "grace"))().get()
result = most
"""
