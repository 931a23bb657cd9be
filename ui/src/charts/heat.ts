// How many durations fell into which bucket at which time: steps, shares and shades. Pure.
import type { Scale } from "./scale";
import type { Step } from "./steps";

/** As the API has it: `matrix` has a row a bucket, a column a step. */
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

export const SHARES = { p50: 0.5, p90: 0.9, p95: 0.95, p99: 0.99 } as const;
// Five buckets a decade: where one begins, the one before ended.
const RATIO = 10 ** 0.2;

/** The steps of a latency that lie in a range; undefined takes all. */
export function within(times: readonly string[], stepMs: number, end: string, range: { from: string; to: string } | undefined): { index: number; from: number; to: number }[] {
  const last = Date.parse(end);
  const [low, high] = range === undefined ? [-Infinity, Infinity] : [Date.parse(range.from), Date.parse(range.to)];
  return times
    .map((time, index) => ({ index, from: Date.parse(time), to: Math.max(Date.parse(time) + 1, Math.min(Date.parse(time) + stepMs, last)) }))
    .filter(({ from, to }) => to > low && from < high);
}

/** The part of a heat map at these columns. */
export function columnsAt(heat: Heat, steps: readonly { index: number }[]): Heat {
  return {
    buckets: heat.buckets,
    lines: steps.map(({ index }) => heat.lines[index] ?? { count: 0 }),
    matrix: heat.matrix.map((row) => steps.map(({ index }) => row[index] ?? 0)),
  };
}

/** Where a bucket begins and ends; the first one, below 1 ms, is drawn as high as the others. */
export function bounds(begin: number): [low: number, high: number] {
  return begin < 1 ? [1 / RATIO, 1] : [begin, begin * RATIO];
}

/** Below which time shares of all durations stayed, about: inside a bucket they are taken as evenly spread, as the server does. */
export function percentiles({ buckets, matrix }: Heat): Line {
  const counts = matrix.map((row) => row.reduce((sum, each) => sum + each, 0));
  const count = counts.reduce((sum, each) => sum + each, 0);
  const found: Record<string, number> = {};
  for (const [name, share] of Object.entries(SHARES)) {
    const value = quantile(buckets, counts, share * count);
    if (value !== undefined) found[`${name}Ms`] = value;
  }
  return { ...found, count };
}

function quantile(buckets: readonly number[], counts: readonly number[], wanted: number): number | undefined {
  let below = 0;
  for (const [at, begin] of buckets.entries()) {
    const own = counts[at] ?? 0;
    const low = begin < 1 ? 0 : begin;
    if (own > 0 && below + own >= wanted) return low + (bounds(begin)[1] - low) * ((wanted - below) / own);
    below += own;
  }
  return undefined;
}

/** Percentiles as steps of a chart. */
export function lineSteps(heat: Heat, steps: readonly { from: number; to: number }[]): Step[] {
  return steps.map(({ from, to }, at) => {
    const line = heat.lines[at];
    const values = line === undefined || line.count === 0 ? null : [line.p50Ms, line.p90Ms, line.p95Ms, line.p99Ms].map((value) => value ?? 0);
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
      paths[shade] += `M${round(x(step.from))} ${round(high)}H${round(x(step.to))}V${round(low)}H${round(x(step.from))}Z`;
    });
  });
  return paths;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
