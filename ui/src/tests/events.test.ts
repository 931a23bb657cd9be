import assert from "node:assert/strict";
import test from "node:test";
import { EventParser } from "../events";

const WHOLE = 'event: hello\nid: 7-1\ndata: {"a":1}\n\n: alive\n\nevent: delta\nid: 7-2\ndata: x\ndata: y\n\n';

test("events come out whole, whatever the pieces", () => {
  const expected = [
    { event: "hello", data: '{"a":1}', id: "7-1" },
    { event: "delta", data: "x\ny", id: "7-2" },
  ];
  for (let size = 1; size <= WHOLE.length; size += 1) {
    const parser = new EventParser();
    const found = [];
    for (let at = 0; at < WHOLE.length; at += size) found.push(...parser.take(WHOLE.slice(at, at + size)));
    assert.deepEqual(found, expected);
  }
});

test("a CRLF that arrives in two pieces is one line end", () => {
  const parser = new EventParser();
  assert.deepEqual(parser.take("event: a\r"), []);
  assert.deepEqual(parser.take("\ndata: b\r\n\r\n"), [{ event: "a", data: "b", id: undefined }]);
});

test("an event keeps the id of the last one that had an id", () => {
  const parser = new EventParser();
  assert.deepEqual(
    parser.take("id: 3\ndata: a\n\ndata: b\n\n").map((event) => event.id),
    ["3", "3"],
  );
});

test("a comment alone is no event", () => {
  assert.deepEqual(new EventParser().take(": still here\n\n"), []);
});
