import assert from "node:assert/strict";
import test from "node:test";
import type { OpsAttempt } from "../api.gen";
import { joined } from "../screens/job/attempts";

const attempt = (number: number, finishedAt = `t${number}`): OpsAttempt => ({ number, outcome: "retried", finishedAt });

test("pages of attempts that overlap are joined without a gap or a double", () => {
  const older = [1, 2, 3, 4].map((each) => attempt(each));
  const newer = [3, 4, 5, 6].map((each) => attempt(each));
  assert.deepEqual(
    joined(older, newer).map((each) => each.number),
    [1, 2, 3, 4, 5, 6],
  );
  assert.deepEqual(joined([], newer), newer);
});

test("attempts that somebody wrote without a number stay apart", () => {
  assert.equal(joined([attempt(0, "a"), attempt(0, "b")], [attempt(0, "b"), attempt(0, "c")]).length, 3);
});
