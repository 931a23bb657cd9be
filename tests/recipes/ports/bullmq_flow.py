"""Recursive children: a tree of jobs, each of which adds up those below it."""

import os
from dataclasses import dataclass, field

from monque import Job, Monque, NewJob

monque = Monque(os.environ["MONQUE_URI"])


@dataclass
class Folder:
    own: int
    folders: list["Folder"] = field(default_factory=list)


@monque.worker("size", concurrency=1, store_result=True)
async def size(job: Job[Folder]) -> int:
    below = await job.run_jobs("folders", [NewJob(size, folder) for folder in job.data.folders])
    return job.data.own + sum(folder.result for folder in below if folder)


async def main() -> object:
    tree = Folder(1, [Folder(2), Folder(3, [Folder(4)])])
    async with monque:
        await monque.start()
        return await monque.result_of(await size.enqueue(tree))


EXPECTED = 10

ORIGINAL = """
import { FlowProducer, QueueEvents, Worker } from 'bullmq';

const connection = { host: 'localhost' };
const flows = new FlowProducer({ connection });
const events = new QueueEvents('sizes', { connection });

new Worker('sizes', async (job) => {
  const below = Object.values(await job.getChildrenValues());
  return job.data.own + below.reduce((sum, size) => sum + size, 0);
}, { connection, concurrency: 1 });

const flowOf = (folder) => ({
  name: 'size',
  queueName: 'sizes',
  data: { own: folder.own },
  children: folder.folders.map(flowOf),
});

const tree = { own: 1, folders: [{ own: 2, folders: [] }, { own: 3, folders: [{ own: 4, folders: [] }] }] };
const { job } = await flows.add(flowOf(tree));
const result = await job.waitUntilFinished(events);
"""
