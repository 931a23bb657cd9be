import assert from "node:assert/strict";
import test from "node:test";
import { filtersOf, pageQuery, parse, selectionOf, textOf, toggled } from "../screens/jobs/filter";

const ID = "65f1c0ffee65f1c0ffee0001";

/** The address that a text leads to. */
function address(text: string): URLSearchParams {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parse(text, ["send-email"], "send-email"))) {
    for (const each of value === undefined ? [] : [value].flat()) query.append(key, each);
  }
  return query;
}

test("a text becomes filters, and these the same text", () => {
  const text = `${ID} key:"a b" on:web-3 payload.a.b:42`;
  assert.deepEqual<object>(selectionOf(address(text)), { uniqueKey: "a b", claimedBy: "web-3", id: [ID], "payload.a.b": "42" });
  assert.equal(textOf(address(text)), text);
});

test("a text in a payload keeps the quotes that tell it from a number", () => {
  assert.deepEqual<object>(selectionOf(address(`payload.n:"42"`)), { "payload.n": `"42"` });
  assert.equal(textOf(address(`payload.n:"42"`)), `payload.n:"42"`);
  assert.deepEqual<object>(selectionOf(address("payload.to:ada@example.org")), { "payload.to": `"ada@example.org"` });
});

test("a number that this browser cannot hold stays what it is", () => {
  const large = "payload.n:1152921504606846977";
  assert.deepEqual<object>(selectionOf(address(large)), { "payload.n": "1152921504606846977" });
  assert.equal(textOf(address(large)), large);
});

test("a known name needs no word before it", () => {
  assert.equal(address("send-email").get("name"), "send-email");
});

test("what cannot be understood is said in a sentence", () => {
  assert.match(String(parse("nonsense", [])), /no id of a job/);
  assert.match(String(parse("key:", [])), /after “key:”/);
  assert.match(String(parse("payload.$where:1", [])), /no id|no path/);
  assert.match(String(parse("payload.a:{}", [])), /single value/);
  assert.match(String(parse("payload.a:1", [])), /choose a name first: name:send-email payload.a:42/);
});

test("a text that is taken away removes its filters", () => {
  assert.deepEqual(Object.keys(parse("", [])), ["id", "uniqueKey", "claimedBy", "scheduleId", "failed"]);
});

test("the API gets the filters and the page, and nothing of other screens", () => {
  const query = new URLSearchParams("name=a&window=1h&status=failed&limit=25&payload.x=%22y%22");
  assert.equal(String(pageQuery(query)), "name=a&status=failed&limit=25&payload.x=%22y%22");
  assert.equal(String(pageQuery(query, "fixed")), "name=fixed&status=failed&limit=25&payload.x=%22y%22");
});

test("a bulk action gets lists and truth values as such", () => {
  const query = new URLSearchParams("status=failed&status=cancelled&recurring=false&payload.a.b=true");
  assert.deepEqual<object>(selectionOf(query), { status: ["failed", "cancelled"], recurring: false, "payload.a.b": "true" });
  assert.equal(String(pageQuery(new URLSearchParams("due=now&cursor=x&limit=5"), "a", true)), "due=now&name=a");
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
