import assert from "node:assert/strict";
import test from "node:test";
import type { OpsJob } from "../api.gen";
import { tally } from "../releases";
import { verdict } from "../screens/failures/canary";

test("a tally puts the most frequent first", () => {
  assert.deepEqual(tally(["a", "b", null, "b"]), [
    ["b", 2],
    ["a", 1],
  ]);
});

const job = (parts: Partial<OpsJob>) => ({ status: "pending", failCount: 0, fingerprint: null, ...parts }) as OpsJob;

test("a canary is judged by what became of it", () => {
  assert.equal(verdict(job({ status: "completed" }), "f").tone, "good");
  assert.match(verdict(job({ status: "failed", fingerprint: "f" }), "f").sentence, /failed the same way/);
  assert.match(verdict(job({ status: "failed", fingerprint: "g" }), "f").sentence, /in another way/);
  assert.equal(verdict(job({ failCount: 1 }), "f").isOver, false);
  assert.match(verdict(job({}), "f").sentence, /waits to be picked up/);
});
