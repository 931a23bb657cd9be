import assert from "node:assert/strict";
import test from "node:test";
import { depths, first, highest, stacked, throughput, total, type Series } from "../charts/steps";

const COLUMNS = ["at", "completed", "retried", "failed", "cancelled", "snoozed", "due", "later", "processing"];

function series(rows: (number | null)[][], to: string, stepMs = 60_000): Series {
  const begin = Date.parse("2026-11-17T12:00:00.000Z");
  return {
    to,
    stepMs,
    columns: COLUMNS,
    rows: rows.map((row, at) => [new Date(begin + at * stepMs).toISOString(), ...row]),
  };
}

const IDLE = [0, 0, 0, 0, 0, 2, 0, 0];
const UNKNOWN = [0, 0, 0, 0, 0, null, null, null];

test("counts become rates of a minute", () => {
  const [step] = throughput(series([[600, 30, 15, 0, 0, 1, 0, 4]], "2026-11-17T12:05:00.000Z", 300_000), undefined);
  assert.deepEqual(step?.values, [120, 6, 3]);
});

test("a step of which nothing is recorded is a gap; one in which nothing ended is zero", () => {
  const steps = throughput(series([UNKNOWN, IDLE], "2026-11-17T12:02:00.000Z"), undefined);
  assert.deepEqual(
    steps.map((step) => step.values),
    [null, [0, 0, 0]],
  );
});

test("jobs that were only cancelled are no gap", () => {
  const steps = throughput(series([[0, 0, 0, 3, 0, null, null, null]], "2026-11-17T12:01:00.000Z"), undefined);
  assert.deepEqual(steps[0]?.values, [0, 0, 0]);
});

test("the live rate stands for a minute that is not over", () => {
  const open = series(
    [
      [60, 0, 0, 0, 0, 0, 0, 0],
      [1, 0, 0, 0, 0, null, null, null],
    ],
    "2026-11-17T12:01:10.000Z",
  );
  const steps = throughput(open, [70, 2, 1]);
  assert.deepEqual(
    steps.map((step) => step.values),
    [
      [60, 0, 0],
      [70, 2, 1],
    ],
  );
  assert.equal(steps[1]?.to, Date.parse("2026-11-17T12:01:10.000Z"));
});

test("a longer step that is not over has the rate of the part that is", () => {
  const open = series([[100, 0, 0, 0, 0, 0, 0, 0]], "2026-11-17T12:10:00.000Z", 3_600_000);
  assert.deepEqual(throughput(open, [70, 2, 1])[0]?.values, [10, 0, 0]);
});

test("depths are gaps where nobody counted, and live at the end", () => {
  const open = series([[0, 0, 0, 0, 0, 5, 0, 2], UNKNOWN, UNKNOWN], "2026-11-17T12:02:30.000Z");
  assert.deepEqual(
    depths(open, [7, 3]).map((step) => step.values),
    [[5, 2], null, [7, 3]],
  );
});

test("totals and first values leave gaps out", () => {
  const given = series([UNKNOWN, [5, 0, 2, 1, 0, 4, 0, 0], [6, 0, 1, 0, 0, 9, 0, 0]], "2026-11-17T12:03:00.000Z");
  assert.deepEqual([total(given, "failed"), total(given, "cancelled"), first(given, "due")], [3, 1, 4]);
  assert.equal(first(series([UNKNOWN], "2026-11-17T12:01:00.000Z"), "due"), undefined);
});

test("layers stand on each other, and a gap begins a new outline", () => {
  const steps = [
    { from: 0, to: 10, values: [1, 2] },
    { from: 10, to: 20, values: [3, 0] },
    { from: 20, to: 30, values: null },
    { from: 30, to: 40, values: [1, 1] },
  ];
  const [low, high] = stacked(
    steps,
    2,
    (value) => value,
    (value) => 10 - value,
  );
  assert.equal(low, "M0 9H10L10 7H20L20 10H10L10 10H0ZM30 9H40L40 10H30Z");
  assert.equal(high, "M0 7H10L10 7H20L20 7H10L10 9H0ZM30 8H40L40 9H30Z");
  assert.equal(highest(steps), 3);
});
