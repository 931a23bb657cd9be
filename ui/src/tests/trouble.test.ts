import assert from "node:assert/strict";
import test from "node:test";
import type { OpsOutlook, OpsQueueRow } from "../api.gen";
import { byTrouble, troubleOf } from "../parts/trouble";

const well: OpsQueueRow = {
  name: "mail",
  due: 0,
  later: 0,
  processing: 0,
  running: 0,
  claimedAhead: 0,
  parked: 0,
  oldestDueMs: 0,
  slots: 4,
  paused: false,
  completedPerMin: 100,
};
const grows: OpsOutlook = { words: "grows by 120 a minute", duePerMin: 120, arrivedPerMin: 200, endedPerMin: 80 };

test("a queue has one trouble, the worst", () => {
  const words = (row: Partial<OpsQueueRow>, outlook?: OpsOutlook) => troubleOf({ ...well, ...row }, outlook).words;
  assert.equal(words({}), "");
  assert.equal(words({ paused: true, due: 9, slots: 0 }), "paused");
  assert.equal(words({ due: 3, slots: 0, oldestDueMs: 600_000 }), "nobody serves it");
  assert.equal(words({ failedPerMin: 20, retriedPerMin: 5 }), "20 % fail");
  assert.equal(words({ due: 3, running: 4, oldestDueMs: 60_000 }), "late");
  assert.equal(words({ due: 30, running: 4, oldestDueMs: 60_000 }, grows), "grows by 120 a minute");
  assert.equal(words({ due: 30, running: 4, oldestDueMs: 900 }, grows), "grows by 120 a minute");
});

test("what is usual for a queue is no trouble", () => {
  assert.equal(troubleOf({ ...well, due: 3, oldestDueMs: 25_000, waitP95Ms: 20_000 }, undefined).weight, 0);
  assert.equal(troubleOf({ ...well, due: 3, oldestDueMs: 70_000, waitP95Ms: 20_000 }, undefined).weight, 3);
});

test("queues come by trouble, then by what they do", () => {
  const rows = [
    { ...well, name: "quiet", completedPerMin: 1 },
    { ...well, name: "busy" },
    { ...well, name: "paused", paused: true },
    { ...well, name: "alone", due: 1, slots: 0, oldestDueMs: 50_000 },
  ];
  assert.deepEqual(
    byTrouble(rows, {}).map((row) => row.name),
    ["alone", "paused", "busy", "quiet"],
  );
});
