import assert from "node:assert/strict";
import test from "node:test";
import type { OpsDelta } from "../api.gen";
import { after, whole } from "../snapshot";

const COLUMNS = ["name", "due", "paused"];

function wire(parts: Partial<OpsDelta>): OpsDelta {
  return {
    at: "2026-11-17T12:00:00.000Z",
    seq: 1,
    everyMs: 1000,
    tookMs: 2,
    columns: COLUMNS,
    totals: { due: 3 },
    names: [],
    instances: [],
    trouble: null,
    gone: [],
    goneInstances: [],
    ...parts,
  };
}

const FIRST = whole(
  wire({
    names: [
      ["a", 1, false],
      ["b", 2, true],
    ],
  }),
);

test("rows are read by the names of their columns", () => {
  assert.equal(FIRST.rows.get("b")?.due, 2);
  assert.equal(FIRST.rows.get("b")?.paused, true);
  assert.equal(FIRST.at, Date.UTC(2026, 10, 17, 12));
});

test("a delta changes some rows and leaves the others the same objects", () => {
  const next = after(FIRST, wire({ seq: 2, names: [["b", 5, false]] }));
  assert.equal(next.rows.get("b")?.due, 5);
  assert.equal(next.rows.get("a"), FIRST.rows.get("a"));
  assert.equal(FIRST.rows.get("b")?.due, 2, "the snapshot before stays as it was");
});

test("names that are gone leave, new ones come", () => {
  const next = after(FIRST, wire({ seq: 2, gone: ["a"], names: [["c", 0, false]] }));
  assert.deepEqual([...next.rows.keys()], ["b", "c"]);
});

test("instances come, change and go", () => {
  const one = {
    id: "web-1",
    host: "a",
    pid: 7,
    release: null,
    version: "1",
    state: "running",
    alive: true,
    seenAt: null,
    slots: 4,
    busy: 0,
  };
  const first = whole(wire({ instances: [one, { ...one, id: "web-2" }] }));
  const next = after(first, wire({ seq: 2, instances: [{ ...one, busy: 3 }], goneInstances: ["web-2"] }));
  assert.deepEqual(
    [...next.instances.values()].map(({ id, busy }) => [id, busy]),
    [["web-1", 3]],
  );
});

test("columns may come in another order, or with more of them", () => {
  const other = whole(wire({ columns: ["due", "new", "name"], names: [[4, "?", "a"]] }));
  assert.equal(other.rows.get("a")?.due, 4);
});
