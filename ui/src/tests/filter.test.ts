import assert from "node:assert/strict";
import test from "node:test";
import { FILTERS, type FilterField } from "../tables";
import { filtersOf, pageQuery, parse, selectionOf, textOf, toggled } from "../screens/jobs/filter";

const ID = "65f1c0ffee65f1c0ffee0001";
const AT = "2030-01-01T00:00:00.000Z";

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
  assert.deepEqual<object>(selectionOf(address(text)), {
    uniqueKey: "a b",
    claimedBy: "web-3",
    id: [ID],
    "payload.a.b": "42",
  });
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
  const typed = [
    "expired",
    "cancelledBy",
    "priority",
    "uniqueKey",
    "id",
    "scheduleId",
    "recurring",
    "claimedBy",
    "waiting",
    "waitsFor",
    "awaits",
    "batch",
    "lostBy",
    "ranAtLeastMs",
    "ranLessThanMs",
    "waitedAtLeastMs",
    "waitedLessThanMs",
    "failed",
  ];
  assert.deepEqual(Object.keys(parse("", [])), typed);
});

test("the API gets the filters and the page, and nothing of other screens", () => {
  const query = new URLSearchParams("name=a&window=1h&status=failed&limit=25&payload.x=%22y%22");
  assert.equal(String(pageQuery(query)), "name=a&status=failed&limit=25&payload.x=%22y%22");
  assert.equal(String(pageQuery(query, "fixed")), "name=fixed&status=failed&limit=25&payload.x=%22y%22");
});

test("a bulk action gets lists and truth values as such", () => {
  const query = new URLSearchParams("status=failed&status=cancelled&recurring=false&payload.a.b=true");
  assert.deepEqual<object>(selectionOf(query), {
    status: ["failed", "cancelled"],
    recurring: false,
    "payload.a.b": "true",
  });
  assert.equal(String(pageQuery(new URLSearchParams("due=now&cursor=x&limit=5"), "a", true)), "due=now&name=a");
});

test("each filter can be dropped by itself", () => {
  const found = filtersOf(new URLSearchParams("status=pending&due=now&name=a&payload.x=1"), (at) => at);
  assert.deepEqual(
    found.map((each) => each.words),
    ["due now, pending", "name a", "payload.x is 1"],
  );
});

test("every filter of the core stands in the address, goes to the API and has words", () => {
  const values: Record<FilterField["kind"], string> = {
    text: "x",
    status: "failed",
    since: AT,
    until: AT,
    least: "1500",
    below: "60000",
    flag: "true",
    choice: "expiry",
    number: "3",
    ids: ID,
    id: ID,
    payload: "7",
  };
  for (const { key, kind, label } of FILTERS) {
    const query = new URLSearchParams([[kind === "payload" ? "payload.a" : key, values[kind]]]);
    assert.equal(String(pageQuery(query)), String(query));
    assert.equal(filtersOf(query, (at) => at).length, 1, key);
    if (kind !== "status" && kind !== "payload")
      assert.ok(filtersOf(query, (at) => at)[0]?.words.startsWith(label), key);
  }
});

test("truth values, numbers and choices are typed, and wrong ones refused", () => {
  const text = "expired:true cancelled-by:expiry priority:3 recurring:false";
  const asked = { expired: true, cancelledBy: "expiry", priority: 3, recurring: false };
  assert.deepEqual<object>(selectionOf(address(text)), asked);
  assert.equal(textOf(address(text)), text);
  const words = filtersOf(address(text), (at) => at).map((each) => each.words);
  assert.deepEqual(words, ["expired", "cancelled by expiry", "priority 3 or higher", "not recurring"]);
  assert.equal(parse("expired:yes", []), "Write expired:true or expired:false.");
  assert.equal(parse("priority:11", []), "Write a number from 1 to 9 after “priority:”.");
  assert.match(String(parse("cancelled-by:me", [])), /cancelled-by:operator or cancelled-by:handler/);
});

test("durations are typed with a unit, and sent in milliseconds", () => {
  const text = "ran-at-least:1500ms ran-less-than:2h waited-at-least:90s waited-less-than:3m";
  const asked = { ranAtLeastMs: 1500, ranLessThanMs: 7_200_000, waitedAtLeastMs: 90_000, waitedLessThanMs: 180_000 };
  assert.deepEqual<object>(selectionOf(address(text)), asked);
  assert.equal(textOf(address(text)), text);
  assert.equal(textOf(address("ran-at-least:1.5s")), "ran-at-least:1500ms");
  assert.match(String(parse("ran-at-least:long", [])), /such as 500ms, 30s, 5m or 2h/);
});

test("due goes with pending jobs alone", () => {
  const parts = toggled(new URLSearchParams("status=pending&due=now"), "failed");
  assert.deepEqual(parts.status, ["pending", "failed"]);
  assert.ok("due" in parts && parts.due === undefined);
  assert.ok("waiting" in toggled(new URLSearchParams("waiting=true"), "failed"));
});
