// BullMQ.
import { Queue, Worker } from 'bullmq';
import { isReady, OPTIONS, REDIS, run, started } from './peer.mjs';

const { hostname: host, port } = new URL(REDIS);
const connection = { host, port: Number(port) };
const opts = OPTIONS.job ?? {};
let queue;
await run({
  start: async () => {
    queue = new Queue('bench', { connection });
    await queue.waitUntilReady();
  },
  stop: () => queue.close(),
  store: number => queue.add('noop', { number }, opts),
  storeMany: numbers => queue.addBulk(numbers.map(number => ({ name: 'noop', data: { number }, opts }))),
  work: async () => {
    const settings = { connection, autorun: false, ...OPTIONS.worker };
    const worker = new Worker('bench', async job => started(job.data.number), settings);
    worker.on('error', error => console.error(error));
    await worker.waitUntilReady();
    isReady();
    worker.run();
    return () => worker.close(true);
  },
});
