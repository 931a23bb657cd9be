import assert from "node:assert/strict";
import test from "node:test";
import { plural, shortened, shortId, shown, visible } from "../text";

test("what cannot be seen is made visible", () => {
  assert.equal(visible("a\u202eb"), "a\\u202eb");
  assert.equal(visible("a\u0000b\u200bc\ufeffd"), "a\\u0000b\\u200bc\\ufeffd");
});

test("a text on one line has no line ends", () => {
  assert.equal(visible("a\r\nb\tc"), "a\\u000d\\u000ab\\u0009c");
  assert.equal(visible("a\u2028b"), "a\\u2028b");
});

test("a text of many lines keeps them, and nothing else that is hidden", () => {
  assert.equal(shown("a\n\tb\u0007"), "a\n\tb\\u0007");
});

test("markup stays as it is: it is shown as text", () => {
  assert.equal(visible("<img src=x onerror=alert(1)>"), "<img src=x onerror=alert(1)>");
});

test("long texts are cut, with a mark", () => {
  assert.equal(shortened("abcdef", 6), "abcdef");
  assert.equal(shortened("abcdefg", 6), "abcde…");
});

test("ids are short in lists", () => {
  assert.equal(shortId("65f0c0ffee65f0c0ffee1234"), "…ffee1234");
  assert.equal(shortId("7"), "7");
});

test("one job, two jobs", () => {
  assert.equal(plural(1, "job"), "1 job");
  assert.equal(plural(12_480, "job"), "12,480 jobs");
  assert.equal(plural(0, "entry", "entries"), "0 entries");
});
