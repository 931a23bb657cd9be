import assert from "node:assert/strict";
import test from "node:test";
import { steady } from "../steady";

test("rows stay where they were; new ones come behind, those that are gone leave no hole", () => {
  const found = steady(["b", "gone", "a"], ["x", "a", "b", "y"], (row) => row);
  assert.deepEqual(found, ["b", "a", "x", "y"]);
});
