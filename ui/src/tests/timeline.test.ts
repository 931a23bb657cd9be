import assert from "node:assert/strict";
import test from "node:test";
import type { OpsJobAnswer } from "../api.gen";
import { axisOf, meaningsOf, timeLine } from "../screens/job/timeline";

const T = Date.parse("2026-01-01T00:00:00.000Z");
const at = (ms: number) => new Date(T + ms).toISOString();

function job(parts: Partial<OpsJobAnswer>): OpsJobAnswer {
  return {
    serverTime: at(0),
    id: "1",
    name: "a",
    status: "completed",
    display: "completed",
    actions: [],
    attempt: 1,
    failCount: 0,
    maxAttempts: 3,
    createdAt: at(0),
    updatedAt: at(0),
    ...parts,
  };
}

function kinds(parts: Partial<OpsJobAnswer>, now: number): [string, number, number][][] {
  return timeLine(job(parts), T + now).lanes.map((lane) =>
    lane.segments.map(({ kind, from, to }) => [kind, from - T, to - T]),
  );
}

test("a job that completed waited and ran", () => {
  const found = kinds(
    {
      nextRunAt: at(10),
      attempts: [{ number: 1, outcome: "completed", startedAt: at(15), finishedAt: at(40) }],
      attemptsTotal: 1,
    },
    99,
  );
  assert.deepEqual(found, [
    [
      ["planned", 0, 10],
      ["wait", 10, 15],
      ["run", 15, 40],
    ],
  ]);
});

test("between attempts is a backoff, and after a final failure a rest until somebody retries", () => {
  const attempts = [
    { number: 1, outcome: "retried", startedAt: at(5), finishedAt: at(10) },
    { number: 2, outcome: "failed", startedAt: at(30), finishedAt: at(40) },
    { number: 3, outcome: "completed", startedAt: at(95), finishedAt: at(99) },
  ];
  const audit = [
    { id: "1", at: at(90), actor: "ada", via: "web", action: "retry", words: "retry", outcome: "done", changes: [] },
  ];
  const found = kinds({ attempts, attemptsTotal: 3, audit }, 200);
  assert.deepEqual(found, [
    [
      ["wait", 0, 5],
      ["run", 5, 10],
    ],
    [
      ["backoff", 10, 30],
      ["run", 30, 40],
    ],
    [
      ["rest", 40, 90],
      ["wait", 90, 95],
      ["run", 95, 99],
    ],
  ]);
});

test("a pending job waits until now, or until its time", () => {
  assert.deepEqual(kinds({ status: "pending", attempt: 0, nextRunAt: at(0) }, 50), [[["wait", 0, 50]]]);
  assert.deepEqual(kinds({ status: "pending", attempt: 0, nextRunAt: at(80) }, 50), [[["planned", 0, 80]]]);
  const tried = {
    attempts: [{ number: 1, outcome: "retried", startedAt: at(5), finishedAt: at(10) }],
    attemptsTotal: 1,
  };
  assert.deepEqual(kinds({ status: "pending", nextRunAt: at(40), ...tried }, 50).at(-1), [
    ["backoff", 10, 40],
    ["wait", 40, 50],
  ]);
});

test("a run goes on until now, or until its owner was last heard of", () => {
  const running = { status: "processing", nextRunAt: at(0), startedAt: at(5), lastHeartbeat: at(20) };
  assert.deepEqual(kinds(running, 50), [
    [
      ["wait", 0, 5],
      ["run", 5, 50],
    ],
  ]);
  assert.deepEqual(kinds({ ...running, stale: true }, 50), [
    [
      ["wait", 0, 5],
      ["run", 5, 20],
      ["silent", 20, 50],
    ],
  ]);
});

test("the key explains what is drawn, and no more", () => {
  const meanings = (parts: Partial<OpsJobAnswer>, now: number) => [...meaningsOf(timeLine(job(parts), T + now)).keys()];
  assert.deepEqual(meanings({ status: "pending", nextRunAt: at(50) }, 20), ["not due"]);
  const attempts = [
    { number: 1, outcome: "timed_out", startedAt: at(5), finishedAt: at(10) },
    { number: 2, outcome: "snoozed", startedAt: at(30), finishedAt: at(40) },
  ];
  assert.deepEqual(meanings({ attempts, attemptsTotal: 2 }, 200), ["due", "failed", "not due", "runs"]);
});

test("a clock that stepped back makes no negative wait", () => {
  const found = kinds(
    { attempts: [{ number: 1, outcome: "completed", startedAt: at(-5), finishedAt: at(3) }], attemptsTotal: 1 },
    9,
  );
  assert.deepEqual(found, [[["run", -5, 3]]]);
});

test("without stored attempts it shows what is known", () => {
  assert.deepEqual(kinds({ status: "failed", attempts: [], updatedAt: at(30) }, 99), [[["wait", 0, 30]]]);
  assert.deepEqual(timeLine(job({ status: "completed", attempts: [] }), T).lanes, []);
});

test("a long wait is compressed, and the order stays", () => {
  const hours = 5 * 3_600_000;
  const line = timeLine(
    job({
      nextRunAt: at(0),
      attempts: [{ number: 1, outcome: "completed", startedAt: at(hours), finishedAt: at(hours + 100) }],
      attemptsTotal: 1,
    }),
    T,
  );
  const axis = axisOf(line, 600);
  assert.equal(axis.breaks.length, 1);
  assert.equal(Math.round(axis.x(line.from)), 0);
  assert.equal(Math.round(axis.x(line.to)), 600);
  assert.ok(axis.x(T + hours) > 200 && axis.x(T + hours) < 400);
  assert.ok(axis.x(T + hours / 2) < axis.x(T + hours));
});

test("a true scale has no breaks", () => {
  const line = timeLine(
    job({
      nextRunAt: at(0),
      attempts: [{ number: 1, outcome: "completed", startedAt: at(10), finishedAt: at(100) }],
      attemptsTotal: 1,
    }),
    T,
  );
  assert.deepEqual(axisOf(line, 600).breaks, []);
});

test("a handler that waits is drawn as suspended, and the runs before it as runs", () => {
  const steps = [
    { name: "charge", kind: "step", at: at(20), durationMs: 5 },
    { name: "nap", kind: "sleep", at: at(30), durationMs: 15, until: at(50) },
    { name: "courier", kind: "signal", at: at(60), durationMs: 4 },
  ];
  const signals = [{ name: "token", at: at(65), size: 12 }];
  const parts: Partial<OpsJobAnswer> = { status: "pending", display: "waiting", steps, signals };
  assert.deepEqual(kinds(parts, 80), [
    [
      ["wait", 0, 15],
      ["run", 15, 30],
      ["suspended", 30, 50],
      ["wait", 50, 56],
      ["run", 56, 60],
      ["suspended", 60, 80],
    ],
  ]);
  const line = timeLine(job(parts), T + 80);
  assert.deepEqual(
    line.steps.map(({ name, waits, from, to }) => [name, waits, from - T, to - T]),
    [
      ["charge", false, 15, 20],
      ["nap", true, 30, 50],
      ["courier", true, 60, 80],
    ],
  );
  assert.deepEqual(
    line.marks.map((mark) => [mark.at - T, mark.isSignal]),
    [[65, true]],
  );
});

test("the runs of a job that waited count as one, and the last is drawn behind the last wait", () => {
  const steps = [{ name: "nap", kind: "sleep", at: at(30), durationMs: 15, until: at(50), over: at(52) }];
  const attempts = [{ number: 2, outcome: "completed", startedAt: at(35), finishedAt: at(60) }];
  assert.deepEqual(kinds({ steps, attempts, attemptsTotal: 1 }, 99), [
    [
      ["wait", 0, 15],
      ["run", 15, 30],
      ["suspended", 30, 52],
      ["run", 52, 60],
    ],
  ]);
});

test("a job that waits for its turn is not due, and one that was cancelled before it ran had no attempt", () => {
  const waitsFor = { why: "turn", since: at(5) };
  assert.deepEqual(kinds({ status: "pending", display: "waiting", attempt: 0, waitsFor }, 20), [[["planned", 0, 20]]]);
  const [lane] = timeLine(job({ status: "cancelled", attempt: 0, updatedAt: at(9) }), T + 99).lanes;
  assert.equal(lane?.number, 1);
});
