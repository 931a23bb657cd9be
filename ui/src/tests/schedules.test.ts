import assert from "node:assert/strict";
import test from "node:test";
import type { OpsSchedule, OpsScheduleAnswer } from "../api.gen";
import { clockChanges } from "../screens/schedules/clocks";
import { changes, wish } from "../screens/schedules/editing";
import { bandsOf, knownUntil, wanted } from "../screens/schedules/lanes";

const HOUR = 3_600_000;
const schedule = (times: readonly number[], more: Partial<OpsSchedule> = { cron: "x" }) =>
  ({ nextRuns: times.map((at) => ({ at: new Date(at).toISOString(), local: "" })), ...more }) as OpsSchedule;

test("runs are asked for only where those of the list end before the lane", () => {
  const hourly = [1, 2, 3, 4, 5].map((each) => each * HOUR);
  assert.equal(wanted(schedule(hourly), 24 * HOUR), 24);
  assert.equal(wanted(schedule(hourly), 5 * HOUR), 0);
  assert.equal(wanted(schedule([HOUR]), 24 * HOUR), 0);
  assert.equal(wanted(schedule(hourly.map((each) => each / 60)), 24 * HOUR), 1_000);
});

test("runs that are too near to each other are one band", () => {
  const found = bandsOf(schedule([0, 10, 20, HOUR]), [], 0, 24 * HOUR, 60_000);
  assert.deepEqual(found, [{ from: 0, to: 20, runs: 3 }, { from: HOUR, to: HOUR, runs: 1 }]);
});

test("runs that have passed are on no lane", () => {
  assert.deepEqual(bandsOf(schedule([HOUR]), [0, 1, HOUR, 2 * HOUR], 10, 24 * HOUR, 60_000).map((each) => each.from), [HOUR, 2 * HOUR]);
});

test("intervals need no question", () => {
  assert.equal(bandsOf(schedule([0], { everyMs: HOUR }), [], 0, 10 * HOUR, 60_000).length, 11);
  assert.deepEqual(bandsOf(schedule([5], { everyMs: 7_000 }), [], 0, HOUR, 60_000), [{ from: 5, to: HOUR, runs: undefined }]);
  assert.deepEqual(bandsOf(schedule([], { everyMs: 7_000 }), [], 0, HOUR, 60_000), []);
});

test("a lane says where the known runs end", () => {
  const known = Array.from({ length: 1_000 }, (_, at) => at * 60_000);
  assert.equal(knownUntil(schedule([0]), known, 24 * HOUR), 999 * 60_000);
  assert.equal(knownUntil(schedule([0]), known.slice(0, 10), 24 * HOUR), 24 * HOUR);
});

test("the clocks of a zone change on known days", () => {
  const from = Date.parse("2026-11-17T15:00:00Z");
  assert.deepEqual(clockChanges("America/New_York", from), [{ day: "2027-03-14", direction: "forward" }, { day: "2027-11-07", direction: "back" }]);
  assert.deepEqual(clockChanges("Europe/Berlin", from).map((each) => each.day), ["2027-03-28", "2027-10-31"]);
  assert.deepEqual(clockChanges("Asia/Kolkata", from), []);
  assert.deepEqual(clockChanges("No/Where", from), []);
});

const stored = { cron: "0 9 * * *", timezone: "UTC", payload: { a: 1 } } as OpsScheduleAnswer;
const fields = { cron: "0 9 * * *", timezone: "UTC", payload: undefined };

test("an edit sends what differs, and nothing if nothing does", () => {
  assert.deepEqual(wish(stored, fields), {});
  assert.deepEqual(wish(stored, { ...fields, cron: " 0 8 * * * " }), { body: { cron: "0 8 * * *" } });
  assert.deepEqual(wish(stored, { ...fields, payload: "null" }), { body: { payload: null } });
});

test("an edit neither stores marks of hidden values nor what is no JSON", () => {
  assert.match(wish(stored, { ...fields, payload: '{"token": "•••"}' }).problem ?? "", /hidden values/);
  assert.match(wish(stored, { ...fields, payload: "{" }).problem ?? "", /no JSON/);
});

test("changes are what differs between before and after", () => {
  assert.deepEqual(changes({ cron: "a", payload: { x: 1 } }, { cron: "b", payload: { x: 1 } }), [{ what: "cron", from: "a", to: "b" }]);
  assert.deepEqual(changes(undefined, { cron: "b" }), []);
});
