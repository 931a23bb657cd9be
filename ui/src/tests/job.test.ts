import assert from "node:assert/strict";
import test from "node:test";
import { bytes, contains, labelOf, nodeOf, pathTo, sizeOf } from "../screens/job/tree";
import { partsOf } from "../screens/job/traceback";

test("values of BSON are one value with a type", () => {
  assert.deepEqual(nodeOf({ $oid: "65f1" }), { type: "ObjectId", text: "65f1" });
  assert.deepEqual(nodeOf({ $numberLong: "1152921504606846976" }), { type: "int64", text: "1152921504606846976" });
  assert.deepEqual(nodeOf({ $binary: { base64: "YWJj", subType: "00" } }), { type: "binary", text: "YWJj" });
  assert.deepEqual(nodeOf({ $date: { $numberLong: "-1" } }), { type: "date", text: "-1" });
});

test("an object that only looks like one stays an object", () => {
  assert.equal(nodeOf({ $oid: "65f1", more: 1 }).type, "object");
  assert.equal(nodeOf({ $odd: 1 }).type, "object");
  assert.equal(nodeOf({}).type, "object");
});

test("a path leads to a value, whatever its keys are", () => {
  assert.equal(pathTo("", "a", false), "a");
  assert.equal(pathTo("a", "0", true), "a[0]");
  assert.equal(pathTo("a", "b.c", false), `a["b.c"]`);
});

test("a search finds keys and values at any depth", () => {
  const value = { a: [{ City: "Ulm" }] };
  assert.ok(contains("", value, "ulm"));
  assert.ok(contains("", value, "city"));
  assert.ok(!contains("", value, "0"));
});

test("sizes are written with their unit", () => {
  assert.equal(sizeOf(nodeOf([1])), "1 item");
  assert.equal(sizeOf(nodeOf({ a: 1, b: 2 })), "2 keys");
  assert.equal(bytes(2048), "2.0 KiB");
});

const TRACE = `Traceback (most recent call last):
  File "/app/shop.py", line 3, in handler
    json.loads(text)
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/json/decoder.py", line 337, in decode
    obj, end = self.raw_decode(s)
json.decoder.JSONDecodeError: Expecting value`;

test("frames of libraries that follow each other are one part", () => {
  const parts = partsOf(TRACE);
  assert.deepEqual(
    parts.map((part) => [part.library, part.frames]),
    [
      [false, 0],
      [false, 1],
      [true, 2],
      [false, 0],
    ],
  );
  assert.equal(parts.map((part) => part.text).join("\n"), TRACE);
});

test("a text that is no traceback stays as it is", () => {
  assert.deepEqual(partsOf("Error: no\n    at line 7"), [
    { library: false, frames: 0, text: "Error: no\n    at line 7" },
  ]);
});

test("fields of the API have a label in words", () => {
  assert.deepEqual(["nextRunAt", "heartbeatIntervalMs", "id"].map(labelOf), ["Next run", "Heartbeat interval", "Id"]);
});
