// What the programs in Node share: the words of contestants/peer.py, and the same marks of time.
import fs from 'node:fs';

export const OPTIONS = JSON.parse(process.env.PEER_OPTIONS || '{}');
export const { PEER_MONGO: MONGO, PEER_REDIS: REDIS, PEER_POSTGRES: POSTGRES } = process.env;
const CALLERS = 50;
const CHUNK = 1000;
const WARM_UP = 5;
const files = {};
const place = Buffer.alloc(8);

function mark(variable, number) {
  files[variable] ??= fs.openSync(process.env[variable], 'r+');
  place.writeBigInt64LE(process.hrtime.bigint());
  fs.writeSync(files[variable], place, 0, 8, 8 * number);
}
export const started = number => mark('PEER_STARTED', number + 1);
export const isReady = () => mark('PEER_STARTED', 0);

async function together(peer, count) {
  if (peer.storeMany) {
    for (let first = 0; first < count; first += CHUNK) {
      const length = Math.min(CHUNK, count - first);
      await peer.storeMany(Array.from({ length }, (_, index) => first + index));
    }
    return;
  }
  let next = 0;
  const caller = async () => {
    while (next < count) await peer.store(next++);
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
}

// peer: { prepare?, start, stop, store, storeMany?, work }; work returns what stops it.
export async function run(peer) {
  const [word, ...numbers] = process.argv.slice(2);
  const [count, low, high] = numbers.map(Number);
  if (word === 'work') {
    const stop = await peer.work();
    process.on('SIGTERM', () => Promise.resolve(stop?.()).finally(() => process.exit(0)));
    return;
  }
  if (word === 'prepare') {
    await peer.prepare?.();
    process.exit(0);
  }
  await peer.start();
  if (word === 'lone') {
    for (let index = -WARM_UP; index < count; index++) {
      const number = index < 0 ? count - index - 1 : index;
      await new Promise(resolve => setTimeout(resolve, low + Math.random() * (high - low)));
      mark('PEER_STORED', number + 1);
      await peer.store(number);
    }
  } else {
    if (word !== 'fill') await peer.store(0); // opens the connection
    const began = process.hrtime.bigint();
    if (word === 'alone') {
      for (let number = 0; number < count; number++) await peer.store(number);
    } else {
      await together(peer, count);
    }
    const seconds = Number(process.hrtime.bigint() - began) / 1e9;
    console.log(JSON.stringify({ jobs: count, seconds }));
  }
  await peer.stop?.();
  process.exit(0);
}
