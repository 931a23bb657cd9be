// From values to places and back, and round ticks between. Pure.

export type Scale = (value: number) => number;

/** Spread the values from `low` to `high` over the places from `start` to `end`. */
export function linear(low: number, high: number, start: number, end: number): Scale {
  const size = high - low || 1;
  return (value) => start + ((value - low) / size) * (end - start);
}

/** The same by logarithm; what is below `low` stands where `low` stands. */
export function logarithmic(low: number, high: number, start: number, end: number): Scale {
  const scale = linear(Math.log(low), Math.log(high), start, end);
  return (value) => scale(Math.log(Math.max(low, value)));
}

/** Round numbers from 0 on; the last one is `top` or more. */
export function ticks(top: number, most = 4): number[] {
  if (top <= 0) return [0, 1];
  const step = roundUp(top / most);
  const found = [0];
  while ((found.at(-1) as number) < top * (1 - 1e-9)) found.push(Number((found.length * step).toPrecision(12)));
  return found;
}

function roundUp(value: number): number {
  const size = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 5, 10].find((each) => value <= each * size * (1 + 1e-9)) ?? 10;
  return factor * size;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
const STEPS = [
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  14 * DAY,
];

export interface TimeTicks {
  step: number;
  at: number[];
}

/** Round times between two. `offset` says how far the reader's clock is ahead of UTC at a moment: midnight is theirs. */
export function timeTicks(from: number, to: number, most: number, offset: (at: number) => number): TimeTicks {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? (STEPS.at(-1) as number);
  const at: number[] = [];
  for (let local = Math.ceil((from + offset(from)) / step) * step; ; local += step) {
    // Where the clocks change on the way, the same local time is an hour off.
    const found = local - offset(local - offset(from));
    if (found > to) return { step, at };
    if (found >= from) at.push(found);
  }
}

const SECOND = 1000;
const DURATIONS = [1, 10, 100, SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, DAY];

/** Durations that people know, for a logarithmic axis. */
export function durationTicks(low: number, high: number): number[] {
  return DURATIONS.filter((each) => each >= low && each <= high);
}

/** The place in a sorted list of steps at which a value lies; the nearest if it lies beside all of them. */
export function indexAt(steps: readonly { from: number; to: number }[], value: number): number {
  const found = steps.findIndex((step) => value < step.to);
  return found < 0 ? steps.length - 1 : found;
}
