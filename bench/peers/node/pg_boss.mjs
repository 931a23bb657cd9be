// pg-boss.
import { PgBoss } from 'pg-boss';
import { isReady, OPTIONS, POSTGRES, run, started } from './peer.mjs';

async function made() {
  const boss = new PgBoss({ connectionString: POSTGRES, ...OPTIONS.boss });
  boss.on('error', error => console.error(error));
  await boss.start();
  return boss;
}
let boss;
await run({
  prepare: async () => {
    boss = await made();
    await boss.createQueue('noop', OPTIONS.queue ?? {});
    await boss.stop({ graceful: false });
  },
  start: async () => {
    boss = await made();
  },
  stop: () => boss.stop({ graceful: false }),
  store: number => boss.send('noop', { number }),
  storeMany: numbers => boss.insert('noop', numbers.map(number => ({ data: { number } }))),
  work: async () => {
    boss = await made();
    isReady();
    await boss.work('noop', OPTIONS.work ?? {}, async jobs => {
      for (const job of jobs) started(job.data.number);
    });
    return () => boss.stop({ graceful: false });
  },
});
