import assert from "node:assert/strict";
import test from "node:test";
import type { OpsScheduleAnswer } from "../api.gen";
import { changes, changeOf } from "../screens/schedules/editing";

const stored = { cron: "0 9 * * *", timezone: "UTC", payload: { a: 1 } } as OpsScheduleAnswer;
const fields = { cron: "0 9 * * *", timezone: "UTC", payload: undefined };

test("an edit sends what differs, and nothing if nothing does", () => {
  assert.deepEqual(changeOf(stored, fields), {});
  assert.deepEqual(changeOf(stored, { ...fields, cron: " 0 8 * * * " }), { body: { cron: "0 8 * * *" } });
  assert.deepEqual(changeOf(stored, { ...fields, payload: "null" }), { body: { payload: null } });
});

test("an edit neither stores marks of hidden values nor what is no JSON", () => {
  assert.match(changeOf(stored, { ...fields, payload: '{"token": "•••"}' }).problem ?? "", /hidden values/);
  assert.match(changeOf(stored, { ...fields, payload: "{" }).problem ?? "", /no JSON/);
});

test("changes are what differs between before and after", () => {
  assert.deepEqual(changes({ cron: "a", payload: { x: 1 } }, { cron: "b", payload: { x: 1 } }), [
    { what: "cron", from: "a", to: "b" },
  ]);
  assert.deepEqual(changes(undefined, { cron: "b" }), []);
});
