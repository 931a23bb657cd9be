import assert from "node:assert/strict";
import test from "node:test";
import type { OpsAuditPage } from "../api.gen";
import { allEntries, jsonLines } from "../screens/audit/lines";

const page = (ids: readonly string[], nextCursor: string | null) => ({ entries: ids.map((id) => ({ id })), nextCursor }) as unknown as OpsAuditPage;

test("an export reads page after page", async () => {
  const asked: (string | undefined)[] = [];
  const told: number[] = [];
  const ask = (cursor: string | undefined) => {
    asked.push(cursor);
    return Promise.resolve(cursor === undefined ? page(["3", "2"], "c") : page(["1"], null));
  };
  const found = await allEntries(ask, (count) => told.push(count));
  assert.deepEqual(found.map((each) => each.id), ["3", "2", "1"]);
  assert.deepEqual(asked, [undefined, "c"]);
  assert.deepEqual(told, [2, 3]);
});

test("each entry is one line, whatever is in it", () => {
  assert.equal(jsonLines([{ note: "a\nb" }, { note: "c" }]), '{"note":"a\\nb"}\n{"note":"c"}\n');
});
