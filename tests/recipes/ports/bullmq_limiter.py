"""A rate limit: at most four jobs start in an hour, on all machines."""

import asyncio
import os
from datetime import timedelta

from monque import Job, Limit, Monque, NewJob, Rate

monque = Monque(os.environ["MONQUE_URI"])
started: list[int] = []
four = asyncio.Event()


@monque.worker("call", concurrency=10, limit=Limit(rate=Rate(4, per=timedelta(hours=1))))
async def call(job: Job[int]) -> None:
    started.append(job.data)
    if len(started) == 4:
        four.set()


async def main() -> object:
    async with monque:
        await monque.start()
        await monque.enqueue_many([NewJob(call, number) for number in range(6)])
        await four.wait()
        await monque.stop()
        return len(started), (await monque.queue_stats(name="call")).pending


EXPECTED = (4, 2)

ORIGINAL = """
import { Queue, Worker } from 'bullmq';

const connection = { host: 'localhost' };
const queue = new Queue('calls', { connection });
const started = [];

new Worker('calls', async (job) => {
  started.push(job.data.number);
}, { connection, concurrency: 10, limiter: { max: 4, duration: 3_600_000 } });

const numbers = [...Array(6).keys()];
await queue.addBulk(numbers.map((number) => ({ name: 'call', data: { number } })));
while ((await queue.getRateLimitTtl()) <= 0) {
  await new Promise((resolve) => setTimeout(resolve, 100));
}
const result = [started.length, await queue.getWaitingCount()];
"""
