// How many durations fell into which bucket at which time: steps, shares and shades. Pure.
import type { Scale } from "./scale";
import type { Step } from "./steps";

/** As the API has it: `matrix` has one row for each bucket, one column for each step. */
export interface Heat {
  lines: readonly Line[];
  buckets: readonly number[];
  matrix: readonly (readonly number[])[];
}

export interface Line {
  p50Ms?: number | null;
  p90Ms?: number | null;
  p95Ms?: number | null;
  p99Ms?: number | null;
  count: number;
}

// Five buckets a decade: where one begins, the one before ended.
const RATIO = 10 ** 0.2;

/** The steps of a latency. */
export function stepsOf(times: readonly string[], stepMs: number, end: string): { from: number; to: number }[] {
  return times.map((time) => {
    const from = Date.parse(time);
    return { from, to: Math.max(from + 1, Math.min(from + stepMs, Date.parse(end))) };
  });
}

/** Where a bucket begins and ends; the first one, below 1 ms, is drawn as high as the others. */
export function bounds(begin: number): [low: number, high: number] {
  return begin < 1 ? [1 / RATIO, 1] : [begin, begin * RATIO];
}

// What is longer than this is in the last bucket.
const LAST = 10 ** 7.8;

/** The bounds of a bucket in whole milliseconds, as durations are stored: at least the first, less than the second. */
export function wholeBounds(begin: number): [least: string | undefined, below: string | undefined] {
  const end = begin < 1 ? 1 : begin * RATIO;
  return [begin < 1 ? undefined : `${Math.ceil(begin)}`, begin > LAST * 0.99 ? undefined : `${Math.ceil(end)}`];
}

/** Percentiles as steps of a chart. */
export function lineSteps(heat: Heat, steps: readonly { from: number; to: number }[]): Step[] {
  return steps.map(({ from, to }, at) => {
    const line = heat.lines[at];
    const values =
      line === undefined || line.count === 0
        ? null
        : [line.p50Ms, line.p90Ms, line.p95Ms, line.p99Ms].map((value) => value ?? 0);
    return { from, to, values };
  });
}

export const SHADES = 5;

/** The largest count of each shade, by logarithm: one run can be told from none. */
export function shades(matrix: readonly (readonly number[])[]): number[] {
  const most = Math.max(1, ...matrix.map((row) => Math.max(0, ...row)));
  const found = Array.from({ length: SHADES }, (_, at) => Math.ceil(most ** ((at + 1) / SHADES) - 1e-9));
  return [...new Set(found)];
}

/** One outline a shade, with all cells that have it. */
export function cells(heat: Heat, steps: readonly { from: number; to: number }[], x: Scale, y: Scale): string[] {
  const limits = shades(heat.matrix);
  const paths = limits.map(() => "");
  heat.matrix.forEach((row, bucket) => {
    const [low, high] = bounds(heat.buckets[bucket] ?? 0).map(y) as [number, number];
    row.forEach((count, at) => {
      const step = steps[at];
      if (count === 0 || step === undefined) return;
      const shade = limits.findIndex((limit) => count <= limit);
      paths[shade] +=
        `M${round(x(step.from))} ${round(high)}H${round(x(step.to))}V${round(low)}H${round(x(step.from))}Z`;
    });
  });
  return paths;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
