import assert from "node:assert/strict";
import test from "node:test";
import { pathsOf, suggestions } from "../screens/jobs/suggestions";

const KNOWN = { names: ["send-email", "a b"], instances: ["web-3"], paths: ["customer.id"] };

test("a text goes on with words, and after a colon with the values of its last term", () => {
  const next = (text: string) => suggestions(text, KNOWN);

  assert.equal(next("")[0], "payload.customer.id:");
  assert.deepEqual(next("o"), ["on:"]);
  assert.deepEqual(next("on:"), ["on:web-3"]);
  assert.deepEqual(next("on:web-3"), []);
  assert.deepEqual(next(`key:"x y" LOST-BY:w`), [`key:"x y" lost-by:web-3`]);
  assert.deepEqual(next("name:"), ["name:send-email", `name:"a b"`]);
  assert.deepEqual(next("expired:"), ["expired:true", "expired:false"]);
  assert.deepEqual(next("on:web-3 pay"), ["on:web-3 payload.customer.id:"]);
  assert.deepEqual(next("payload.customer.id:"), []);
});

test("paths in payloads lead to single values, whatever the values say and wherever the text ends", () => {
  assert.deepEqual(pathsOf(`{"customer": {"id": 7, "name": "\\"vip\\": {"}, "lines": [{"sku": "x"}, 3], "n": null}`), [
    "customer.id",
    "customer.name",
    "lines.sku",
    "n",
  ]);
  assert.deepEqual(pathsOf(`{"to": "ada", "text": "said \\"secret\\": 4…`), ["to", "text"]);
  assert.deepEqual(pathsOf(`{"at": {"$date": "2030-01-01"}, "a.b": 1, "": 2, "x y": 3}`), []);
  assert.deepEqual(pathsOf(`"text"`), []);
});
