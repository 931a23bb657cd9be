import assert from "node:assert/strict";
import test from "node:test";
import type { OpsJob } from "../api.gen";
import { matches, newAbove, newsOf, rowsOf } from "../screens/jobs/matching";
import { NOTHING, pagePressed, pressed } from "../screens/jobs/selecting";

function job(id: string, parts: Partial<OpsJob> = {}): OpsJob {
  return {
    id,
    name: "a",
    status: "failed",
    display: "failed",
    actions: [],
    attempt: 1,
    failCount: 1,
    maxAttempts: 3,
    ...parts,
  };
}

test("a row that does not match any more stays, and says where it went", () => {
  const jobs = [job("1"), job("2"), job("3")];
  const news = newsOf(["1", "2"], [job("1", { status: "pending", display: "due" })]);
  const rows = rowsOf(jobs, news, { status: ["failed"] }, 0);
  assert.deepEqual(
    rows.map((row) => [row.job.display, row.moved, row.deleted]),
    [
      ["due", true, false],
      ["failed", true, true],
      ["failed", false, false],
    ],
  );
});

test("due is a matter of the time", () => {
  const waiting = job("1", { status: "pending", nextRunAt: "2026-01-01T00:00:10.000Z" });
  const at = Date.parse("2026-01-01T00:00:09.000Z");
  assert.ok(matches(waiting, { due: "later" }, at));
  assert.ok(!matches(waiting, { due: "later" }, at + 2000));
  assert.ok(matches(waiting, { due: "now" }, at + 2000));
});

test("a job that was woken waits no more", () => {
  const sleeps = job("1", { status: "pending", waitsFor: { why: "time" } });
  assert.ok(matches(sleeps, { waiting: true, waitsFor: "time" }, 0));
  assert.ok(!matches(sleeps, { waitsFor: "signal" }, 0));
  assert.ok(!matches(job("1", { status: "pending" }), { waiting: true }, 0));
});

test("priority, expiry and the cause of a cancellation may change", () => {
  const urgent = job("1", { status: "pending", priority: 3, expiresAt: "2026-01-01T00:00:10.000Z" });
  const at = Date.parse("2026-01-01T00:00:09.000Z");
  assert.ok(matches(urgent, { priority: 3, expired: false }, at));
  assert.ok(!matches(job("1"), { priority: 3 }, at));
  assert.ok(matches(urgent, { expired: true }, at + 2000));
  assert.ok(!matches(urgent, { cancelledBy: "expiry" }, at));
  assert.ok(!matches(urgent, { claimedAtFrom: "2026-01-01T00:00:00.000Z" }, at));
});

test("new jobs are those above the ones on screen", () => {
  const known = new Set(["3", "2"]);
  assert.equal(
    newAbove(
      ["5", "4", "3", "2", "1"].map((id) => job(id)),
      known,
    ),
    2,
  );
  assert.equal(
    newAbove(
      ["3", "4", "2", "1"].map((id) => job(id)),
      known,
    ),
    1,
  );
  assert.equal(
    newAbove(
      ["9", "8"].map((id) => job(id)),
      known,
    ),
    2,
  );
});

test("Shift selects a range, in both directions", () => {
  const order = ["a", "b", "c", "d"];
  const one = pressed(NOTHING, "c", false, order);
  assert.deepEqual([...pressed(one, "a", true, order).ids].sort(), ["a", "b", "c"]);
  assert.deepEqual([...pressed(one, "d", true, order).ids].sort(), ["c", "d"]);
});

test("the box of the page selects all of it, or nothing", () => {
  const order = ["a", "b"];
  const all = pagePressed(NOTHING, order);
  assert.equal(all.ids.size, 2);
  assert.equal(pagePressed(all, order).ids.size, 0);
});
