import assert from "node:assert/strict";
import test from "node:test";
import { absolute, axisTime, clock, count, duration, elsewhere, exact, localized, moment, relative } from "../time";

const NOON = Date.UTC(2026, 10, 17, 12, 0, 0);

test("durations are exact below a minute", () => {
  const shown: [number, string][] = [
    [0, "0 ms"],
    [340, "340 ms"],
    [999, "999 ms"],
    [1000, "1 s"],
    [1240, "1.24 s"],
    [1205, "1.21 s"],
    [12_400, "12.4 s"],
    [59_940, "59.9 s"],
    [59_990, "1 min"],
  ];
  for (const [ms, text] of shown) assert.equal(duration(ms), text);
});

test("longer durations have two units at most", () => {
  assert.equal(duration(60_000), "1 min");
  assert.equal(duration(725_000), "12 min 5 s");
  assert.equal(duration(3_600_000 * 3 + 120_000), "3 h 2 min");
  assert.equal(duration(86_400_000 * 2 + 3_600_000 * 4), "2 d 4 h");
  assert.equal(duration(86_400_000 * 367 + 3_600_000 * 16), "1 y 2 d");
  assert.equal(duration(47 * 60_000), "47 min");
});

test("a wait that a clock step made negative has a sign", () => {
  assert.equal(duration(-1500), "−1.5 s");
});

test("ages are in whole seconds, and look both ways", () => {
  assert.equal(relative(NOON - 12_900, NOON), "12 s ago");
  assert.equal(relative(NOON + 5 * 60_000, NOON), "in 5 min");
  assert.equal(relative(NOON - 400, NOON), "now");
});

test("a moment has its zone, and its day unless that is today", () => {
  assert.equal(absolute(NOON, "utc", NOON, "en-GB"), "12:00:00 UTC");
  assert.equal(absolute(NOON - 86_400_000, "utc", NOON, "en-GB"), "16 Nov, 12:00:00 UTC");
  assert.equal(absolute(NOON - 365 * 86_400_000, "utc", NOON, "en-GB"), "17 Nov 2025, 12:00:00 UTC");
});

test("an exact moment has milliseconds", () => {
  assert.match(exact(NOON + 7, "utc", "en-GB"), /12:00:00\.007 UTC/);
});

test("midnight on an axis is 00:00, not 24:00", () => {
  assert.equal(clock(Date.UTC(2026, 10, 17), "utc", false, "en-GB"), "00:00");
});

test("ticks on an axis name the day where one begins", () => {
  const midnight = Date.UTC(2026, 10, 17);
  assert.equal(axisTime(midnight, 3_600_000, "utc", "en-GB"), "17 Nov");
  assert.equal(axisTime(midnight + 3_600_000, 3_600_000, "utc", "en-GB"), "01:00");
  assert.equal(axisTime(midnight + 3_600_000, 86_400_000, "utc", "en-GB"), "17 Nov");
});

test("large counts get a unit", () => {
  assert.equal(count(12_480), "12,480");
  assert.equal(count(1_234_567), "1.2 M");
  assert.equal(count(999_999), "999,999");
});

test("no time is no moment", () => {
  assert.equal(moment(null), undefined);
  assert.equal(moment("2026-11-17T12:00:00.000Z"), NOON);
});

test("a sentence of the server has the reader's times", () => {
  const shown = (text: string) => localized(text, "local", NOON, "en-GB");
  const at = (...time: [number, number, number, number]) =>
    absolute(Date.UTC(2026, 10, ...time), "local", NOON, "en-GB");
  assert.equal(
    shown("It was stored to run at 14:02:11 UTC, in 2 h."),
    `It was stored to run at ${at(17, 14, 2, 11)}, in 2 h.`,
  );
  assert.equal(
    shown("No instance has reported since 2026-11-16 20:30 UTC."),
    `No instance has reported since ${at(16, 20, 30, 0)}.`,
  );
  assert.equal(
    shown("Its next time is Monday 09:00 Europe/Berlin, in 3 d."),
    "Its next time is Monday 09:00 Europe/Berlin, in 3 d.",
  );
  assert.equal(localized("paused a, until 13:00 UTC.", "utc", NOON, "en-GB"), "paused a, until 13:00:00 UTC.");
});

test("a moment of another place has its own clocks, and a year only if it is another", () => {
  assert.equal(elsewhere("2026-11-18T02:30:00", NOON, "en-GB"), "18 Nov, 02:30");
  assert.equal(elsewhere("2027-03-11T02:30:15", NOON, "en-GB"), "11 Mar 2027, 02:30:15");
});
