"""Whoever adds a job waits for its end and hears of its progress: QueueEvents."""

import os
from datetime import timedelta

from monque import Job, JobFailedError, Monque

monque = Monque(os.environ["MONQUE_URI"])


@monque.worker("render", max_attempts=1, store_result=True)
async def render(job: Job[int]) -> str:
    job.report_progress(50, 100)
    if job.data == 0:
        raise ValueError("there is no page 0")
    return f"page {job.data}"


async def main() -> object:
    async with monque:
        await monque.start()
        good, bad = await render.enqueue(3), await render.enqueue(0)
        result = await monque.result_of(good, timeout=timedelta(seconds=30))
        problem = None
        try:
            await monque.result_of(bad, timeout=timedelta(seconds=30))
        except JobFailedError as error:
            problem = error.job.fail_reason
        return result, problem


EXPECTED = ("page 3", "ValueError: there is no page 0")

ORIGINAL = """
import { Queue, QueueEvents, Worker } from 'bullmq';

const connection = { host: 'localhost' };
const queue = new Queue('render', { connection });
const events = new QueueEvents('render', { connection });

new Worker('render', async (job) => {
  await job.updateProgress(50);
  if (job.data.page === 0) {
    throw new Error('there is no page 0');
  }
  return `page ${job.data.page}`;
}, { connection });

const good = await queue.add('render', { page: 3 });
const result = await good.waitUntilFinished(events, 30_000);

const bad = await queue.add('render', { page: 0 });
let problem;
try {
  await bad.waitUntilFinished(events, 30_000);
} catch (error) {
  problem = error.message;
}
"""
