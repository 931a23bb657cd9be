// graphile-worker.
import { Logger, makeWorkerUtils, run as runWorker, runMigrations } from 'graphile-worker';
import { isReady, OPTIONS, POSTGRES, run, started } from './peer.mjs';

const logger = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') console.error(message);
});
let utils;
await run({
  prepare: () => runMigrations({ connectionString: POSTGRES, logger }),
  start: async () => {
    utils = await makeWorkerUtils({ connectionString: POSTGRES, logger });
  },
  stop: () => utils.release(),
  store: number => utils.addJob('noop', { number }),
  storeMany: numbers => utils.addJobs(numbers.map(number => ({ identifier: 'noop', payload: { number } }))),
  work: async () => {
    isReady();
    const runner = await runWorker({
      preset: { worker: { connectionString: POSTGRES, logger, ...OPTIONS.worker } },
      noHandleSignals: true,
      taskList: { noop: async payload => started(payload.number) },
    });
    return () => runner.stop();
  },
});
