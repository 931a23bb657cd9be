import assert from "node:assert/strict";
import test from "node:test";
import type { OpsInstance, OpsJob, OpsJobAnswer } from "../api.gen";
import { groupWays, scheduleWays } from "../copyops";
import { newestRelease, tally } from "../releases";
import { verdict } from "../screens/failures/canary";
import { report } from "../screens/failures/report";

const instance = (release: string | null, startedAt: string) => ({ release, startedAt }) as OpsInstance;

test("the newest release is the one whose first instance started last", () => {
  const found = [instance("b", "2026-01-02T00:00:00Z"), instance("a", "2026-01-01T00:00:00Z"), instance("a", "2026-01-03T00:00:00Z"), instance(null, "2026-01-04T00:00:00Z")];
  assert.equal(newestRelease(found), "b");
  assert.equal(newestRelease([]), undefined);
});

test("a tally puts the most frequent first", () => {
  assert.deepEqual(tally(["a", "b", null, "b"]), [["b", 2], ["a", 1]]);
});

const job = (parts: Partial<OpsJob>) => ({ status: "pending", failCount: 0, fingerprint: null, ...parts }) as OpsJob;

test("a canary is judged by what became of it", () => {
  assert.equal(verdict(job({ status: "completed" }), "f").tone, "good");
  assert.match(verdict(job({ status: "failed", fingerprint: "f" }), "f").sentence, /failed the same way/);
  assert.match(verdict(job({ status: "failed", fingerprint: "g" }), "f").sentence, /in another way/);
  assert.equal(verdict(job({ failCount: 1 }), "f").isOver, false);
  assert.match(verdict(job({}), "f").sentence, /waits to be picked up/);
});

test("a bug report has the newest traceback, and no payload", () => {
  const group = { fingerprint: "f1", sentence: "TimeoutError: …", count: 2, names: ["mail"], firstSeen: "A", lastSeen: "B", sampleIds: ["1"], isNew: true } as never;
  const sample = { payload: { secret: "s3" }, attempts: [{ error: { type: "T", traceback: "old" } }, { error: { type: "T", traceback: "Traceback\n" } }] } as unknown as OpsJobAnswer;
  const text = report({ group, sample, differingKeys: ["order"], link: "http://x/failures/f1" });
  assert.match(text, /- 2 jobs \(mail\)/);
  assert.match(text, /```\nTraceback\n```/);
  assert.ok(!/s3|old/.test(text));
});

test("a schedule is named by its key only where that is not the name", () => {
  const actions = ["run-now", "pause", "edit", "delete"] as const;
  const [show, run] = scheduleWays({ id: "1", name: "mail", key: "mail", actions: [...actions] }, "http://x/");
  assert.equal(show?.command, "monque schedules show mail");
  assert.equal(run?.python, 'await monque.trigger_schedule("mail")');
  const other = scheduleWays({ id: "1", name: "mail", key: "it's", actions: [...actions] }, "http://x/");
  assert.equal(other[2]?.command, "monque schedules pause mail --unique-key 'it'\\''s'");
  assert.equal(other.length, 4);
});

test("a group has links and requests", () => {
  assert.match(groupWays("f1", new URLSearchParams({ window: "1h" }), "http://x/")[0]?.link ?? "", /failures\/f1\?window=1h$/);
});
