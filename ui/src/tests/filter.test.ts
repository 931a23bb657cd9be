import assert from "node:assert/strict";
import test from "node:test";
import { filtersOf, pageQuery, parse, queryOf, selectionOf, textOf, toggled } from "../screens/jobs/filter";

const ID = "65f1c0ffee65f1c0ffee0001";

/** The address that a text leads to. */
function address(text: string): URLSearchParams {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parse(text, ["send-email"]))) {
    for (const each of value === undefined ? [] : [value].flat()) query.append(key, each);
  }
  return query;
}

test("a text becomes filters, and these the same text", () => {
  const text = `${ID} key:"a b" on:web-3 payload.a.b:42`;
  assert.deepEqual(selectionOf(address(text)), { uniqueKey: "a b", claimedBy: "web-3", id: [ID], payload: { "a.b": 42 } });
  assert.equal(textOf(address(text)), text);
});

test("a text in a payload keeps the quotes that tell it from a number", () => {
  assert.deepEqual(selectionOf(address(`payload.n:"42"`)).payload, { n: "42" });
  assert.equal(textOf(address(`payload.n:"42"`)), `payload.n:"42"`);
  assert.deepEqual(selectionOf(address("payload.to:ada@example.org")).payload, { to: "ada@example.org" });
});

test("a known name needs no word before it", () => {
  assert.equal(address("send-email").get("name"), "send-email");
});

test("what cannot be understood is said in a sentence", () => {
  assert.match(String(parse("nonsense", [])), /24 hex characters/);
  assert.match(String(parse("key:", [])), /after “key:”/);
  assert.match(String(parse("payload.$where:1", [])), /24 hex|no path/);
  assert.match(String(parse("payload.a:{}", [])), /text, a number/);
});

test("a text that is taken away removes its filters", () => {
  assert.deepEqual(Object.keys(parse("", [])), ["id", "uniqueKey", "claimedBy", "scheduleId", "failed"]);
});

test("the API gets the filters and the page, and nothing of other screens", () => {
  const query = new URLSearchParams("name=a&window=1h&status=failed&status=odd&limit=25&payload.x=%22y%22");
  assert.equal(String(pageQuery(query)), "name=a&status=failed&payload.x=%22y%22&limit=25");
  assert.equal(String(pageQuery(query, { name: "fixed" })), "name=fixed&status=failed&payload.x=%22y%22&limit=25");
});

test("a query survives the way through the body of a bulk action", () => {
  const query = new URLSearchParams("status=failed&status=cancelled&recurring=false&payload.a.b=true&createdAtFrom=2026-01-01T00:00:00.000Z");
  assert.deepEqual(selectionOf(queryOf(selectionOf(query))), selectionOf(query));
});

test("each filter can be dropped by itself", () => {
  const found = filtersOf(new URLSearchParams("status=pending&due=now&name=a&payload.x=1"), (at) => at);
  assert.deepEqual(found.map((each) => each.words), ["due now, pending", "name a", "payload.x is 1"]);
});

test("due goes with pending jobs alone", () => {
  const parts = toggled(new URLSearchParams("status=pending&due=now"), "failed");
  assert.deepEqual(parts["status"], ["pending", "failed"]);
  assert.ok("due" in parts && parts["due"] === undefined);
});
