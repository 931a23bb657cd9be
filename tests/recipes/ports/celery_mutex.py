"""A mutex: one task of this name at a time, on all machines."""

import asyncio
import os

from monque import Job, Monque, NewJob

monque = Monque(os.environ["MONQUE_URI"])
running: list[str] = []
most: list[int] = []


@monque.worker("import-feed", limit=1)
async def import_feed(job: Job[str]) -> None:
    running.append(job.data)
    most.append(len(running))
    await asyncio.sleep(0)
    running.remove(job.data)


async def main() -> object:
    async with monque:
        await monque.start()
        jobs = await monque.enqueue_many([NewJob(import_feed, url) for url in "abcde"])
        await asyncio.gather(*(monque.wait_for(job) for job in jobs))
        return max(most)


EXPECTED = 1

ORIGINAL = """
from contextlib import contextmanager
from celery import Celery, group
from django.core.cache import cache

app = Celery("feeds", broker="redis://", backend="redis://")
running, most = [], []

@contextmanager
def memcache_lock(name, owner):
    taken = cache.add(name, owner, 600)
    try:
        yield taken
    finally:
        if taken:
            cache.delete(name)

@app.task(bind=True, max_retries=None)
def import_feed(self, url):
    with memcache_lock("import-feed", self.app.oid) as taken:
        if not taken:
            raise self.retry(countdown=1)
        running.append(url)
        most.append(len(running))
        running.remove(url)

group(import_feed.s(url) for url in "abcde")().get()
result = max(most)
"""
