// Agenda with its backend in MongoDB.
import { MongoBackend } from '@agendajs/mongo-backend';
import { Agenda } from 'agenda';
import { MongoClient } from 'mongodb';
import { isReady, MONGO, OPTIONS, run, started } from './peer.mjs';

async function made() {
  const client = await MongoClient.connect(MONGO);
  const backend = new MongoBackend({ mongo: client.db('agenda') });
  const agenda = new Agenda({ backend, ...OPTIONS.agenda });
  agenda.on('error', error => console.error(error));
  await agenda.ready;
  return agenda;
}
let agenda;
await run({
  start: async () => {
    agenda = await made();
  },
  store: number => agenda.now('noop', { number }),
  work: async () => {
    agenda = await made();
    agenda.define('noop', async job => started(job.attrs.data.number));
    isReady();
    await agenda.start();
    return () => agenda.stop();
  },
});
