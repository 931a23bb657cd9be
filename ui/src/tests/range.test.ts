import assert from "node:assert/strict";
import test from "node:test";
import { ranges } from "../screens/audit/range";

const NOON = Date.UTC(2026, 10, 18, 12);

test("yesterday is a whole day of the zone", () => {
  const [, , [words, yesterday] = []] = ranges(NOON, "utc");
  assert.equal(words, "Yesterday");
  assert.deepEqual(yesterday, { from: "2026-11-17T00:00:00.000Z", to: "2026-11-18T00:00:00.000Z" });
});

test("today and the last days end now, and any time has no bounds", () => {
  const bounds = ranges(NOON, "utc").map(([, { from, to }]) => [from?.slice(0, 10), to?.slice(0, 10)]);
  assert.deepEqual(bounds, [
    [undefined, undefined],
    ["2026-11-18", undefined],
    ["2026-11-17", "2026-11-18"],
    ["2026-11-11", undefined],
  ]);
});
