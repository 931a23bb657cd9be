import assert from "node:assert/strict";
import test from "node:test";
import { bounds, cells, lineSteps, shades, stepsOf, type Heat, wholeBounds } from "../charts/heat";

const TIMES = ["2026-11-17T12:00:00.000Z", "2026-11-17T12:01:00.000Z", "2026-11-17T12:02:00.000Z"];
const HEAT: Heat = {
  buckets: [0, 1, 1.585],
  lines: [
    { p50Ms: 1, p90Ms: 2, p95Ms: 2.1, p99Ms: 2.4, count: 10 },
    { count: 0 },
    { p50Ms: 1, p90Ms: 1, p95Ms: 1, p99Ms: 1, count: 1 },
  ],
  matrix: [
    [1, 0, 0],
    [5, 0, 1],
    [4, 0, 0],
  ],
};

test("the last step ends where the answer does", () => {
  assert.deepEqual(
    stepsOf(TIMES, 60_000, "2026-11-17T12:02:30.000Z").map(({ from, to }) => (to - from) / 1000),
    [60, 60, 30],
  );
});

test("the bounds of a bucket are whole milliseconds, and those of its neighbours meet", () => {
  assert.deepEqual([0, 1, 1.585, 63095734.448].map(wholeBounds), [
    [undefined, "1"],
    ["1", "2"],
    ["2", "3"],
    ["63095735", undefined],
  ]);
});

test("a step without runs is a gap", () => {
  const steps = stepsOf(TIMES, 60_000, "2026-11-17T12:03:00.000Z");
  assert.deepEqual(
    lineSteps(HEAT, steps).map((step) => step.values),
    [[1, 2, 2.1, 2.4], null, [1, 1, 1, 1]],
  );
});

test("what is below a millisecond is as high as the other buckets", () => {
  const [low, high] = bounds(0);
  assert.ok(Math.abs(high / low - 10 ** 0.2) < 1e-9);
});

test("shades grow by logarithm, the first is for a single run", () => {
  assert.deepEqual(shades([[0, 100_000]]), [10, 100, 1000, 10_000, 100_000]);
  assert.deepEqual(shades([[1, 0]]), [1]);
  assert.deepEqual(shades([[3]]), [2, 3]);
});

test("cells of one shade are one outline", () => {
  const paths = cells(
    { ...HEAT, buckets: [1], matrix: [[1, 0, 100]] },
    [
      { from: 0, to: 1 },
      { from: 1, to: 2 },
      { from: 2, to: 3 },
    ],
    (value) => value,
    (value) => Math.round(value),
  );
  assert.equal(paths.length, 5);
  assert.deepEqual([paths[0], paths[4]], ["M0 2H1V1H0Z", "M2 2H3V1H2Z"]);
});
