import assert from "node:assert/strict";
import test from "node:test";
import { DAY, durationTicks, indexAt, linear, logarithmic, ticks, timeTicks } from "../charts/scale";

const HOUR = 3_600_000;

test("a scale turns values into places, also upside down", () => {
  const y = linear(0, 10, 100, 0);
  assert.deepEqual([0, 5, 10].map(y), [100, 50, 0]);
  assert.equal(linear(3, 3, 0, 100)(3), 0, "one value alone is no division by zero");
});

test("a logarithmic scale gives each decade the same room", () => {
  const scale = logarithmic(1, 100, 0, 10);
  assert.deepEqual(
    [0, 1, 10, 100].map((value) => Math.round(scale(value))),
    [0, 0, 5, 10],
  );
});

test("ticks are round, begin at zero and reach the top", () => {
  assert.deepEqual(ticks(340), [0, 100, 200, 300, 400]);
  assert.deepEqual(ticks(7), [0, 2, 4, 6, 8]);
  assert.deepEqual(ticks(0.3), [0, 0.1, 0.2, 0.3]);
  assert.deepEqual(ticks(0), [0, 1]);
  for (const top of [1, 3, 9.99, 10, 10.01, 12_480, 1e9]) {
    const found = ticks(top);
    assert.ok((found.at(-1) as number) >= top && found.length <= 6, `${top}: ${found}`);
  }
});

test("time ticks are round times of the reader", () => {
  const from = Date.UTC(2026, 10, 17, 11, 58);
  const { at } = timeTicks(from, from + HOUR, 6, () => 0);
  assert.deepEqual(
    at.map((each) => new Date(each).toISOString().slice(11, 16)),
    ["12:00", "12:10", "12:20", "12:30", "12:40", "12:50"],
  );
});

test("days begin at midnight of the reader", () => {
  const from = Date.UTC(2026, 10, 10);
  const { step, at } = timeTicks(from, from + 7 * DAY, 7, () => 2 * HOUR);
  assert.equal(step, DAY);
  assert.ok(at.every((each) => new Date(each).toISOString().slice(11, 16) === "22:00"));
});

test("days begin at midnight on both sides of a change of the clocks", () => {
  const change = Date.UTC(2026, 9, 25, 1); // Berlin: from +2 h to +1 h
  const offset = (at: number) => (at < change ? 2 * HOUR : HOUR);
  const { at } = timeTicks(change - 2 * DAY, change + 2 * DAY, 4, offset);
  assert.deepEqual(
    at.map((each) => new Date(each + offset(each)).toISOString().slice(5, 16)),
    ["10-24T00:00", "10-25T00:00", "10-26T00:00", "10-27T00:00"],
  );
});

test("durations on an axis are ones that people know", () => {
  assert.deepEqual(durationTicks(5, 120_000), [10, 100, 1000, 10_000, 60_000]);
});

test("a place beside all steps belongs to the nearest", () => {
  const steps = [
    { from: 0, to: 10 },
    { from: 10, to: 20 },
  ];
  assert.deepEqual(
    [-5, 3, 10, 25].map((value) => indexAt(steps, value)),
    [0, 0, 1, 1],
  );
});
