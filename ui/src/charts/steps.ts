// The numbers of a series as steps of a chart. Pure.
import type { Scale } from "./scale";

/** As the API has it: one row a step, `at` first. */
export interface Series {
  to: string;
  stepMs: number;
  columns: string[];
  rows: (number | string | null)[][];
}

export interface Step {
  from: number;
  to: number;
  /** One value a layer; null where nothing was recorded. */
  values: readonly number[] | null;
}

const MINUTE = 60_000;
export const ENDINGS = ["completed", "retried", "failed"] as const;
export const DEPTHS = ["due", "processing"] as const;

/** Runs that ended, for each minute. `live` stands for a last minute that is not over. */
export function throughput(series: Series, live: readonly number[] | undefined): Step[] {
  const known = ["due", "later", "processing"];
  return stepsOf(series).map(({ row, from, to, isOpen }) => {
    const ended = ENDINGS.map((name) => row(name) ?? 0);
    const all = ended.reduce((sum, each) => sum + each, 0) + (row("cancelled") ?? 0) + (row("snoozed") ?? 0);
    if (isOpen && live !== undefined && series.stepMs <= MINUTE) return { from, to, values: live };
    if (all === 0 && !isOpen && known.every((name) => row(name) === null)) return { from, to, values: null };
    // In the first second of a step its rate would be anything.
    const minutes = Math.max(to - from, Math.min(series.stepMs, MINUTE)) / MINUTE;
    return { from, to, values: ended.map((count) => count / minutes) };
  });
}

/** The most jobs that waited and ran at one moment of each step. */
export function depths(series: Series, live: readonly number[] | undefined): Step[] {
  return stepsOf(series).map(({ row, from, to, isOpen }) => {
    const found = DEPTHS.map(row);
    if (isOpen && live !== undefined)
      return { from, to, values: live.map((value, at) => Math.max(value, found[at] ?? 0)) };
    return { from, to, values: found.some((value) => value === null) ? null : (found as number[]) };
  });
}

/** How many of a kind there were in all steps. */
export function total(series: Series, name: string): number {
  return stepsOf(series).reduce((sum, { row }) => sum + (row(name) ?? 0), 0);
}

/** The first number of a kind that somebody recorded. */
export function first(series: Series, name: string): number | undefined {
  return (
    stepsOf(series)
      .map(({ row }) => row(name))
      .find((value) => value !== null) ?? undefined
  );
}

interface Read {
  from: number;
  to: number;
  /** Whether the step is going on. */
  isOpen: boolean;
  row: (name: string) => number | null;
}

function stepsOf({ to, stepMs, columns, rows }: Series): Read[] {
  const end = Date.parse(to);
  return rows.map((cells) => {
    const from = Date.parse(String(cells[columns.indexOf("at")]));
    const row = (name: string) => {
      const value = cells[columns.indexOf(name)];
      return typeof value === "number" ? value : null;
    };
    return { from, to: Math.max(from + 1, Math.min(from + stepMs, end)), isOpen: from + stepMs > end, row };
  });
}

/** The largest sum of a step. */
export function highest(steps: readonly Step[]): number {
  return Math.max(0, ...steps.map(({ values }) => (values ?? []).reduce((sum, each) => sum + each, 0)));
}

/** One outline a layer, the first at the bottom. Each step is as wide as its time: nothing is smoothed, gaps stay empty. */
export function stacked(steps: readonly Step[], layers: number, x: Scale, y: Scale): string[] {
  const known = stretches(steps);
  return Array.from({ length: layers }, (_, layer) => known.map((stretch) => outline(stretch, layer, x, y)).join(""));
}

function outline(stretch: readonly Step[], layer: number, x: Scale, y: Scale): string {
  const sum = (step: Step, count: number) => (step.values ?? []).slice(0, count).reduce((all, each) => all + each, 0);
  const line = (count: number, steps: readonly Step[], back: boolean) =>
    steps
      .map((step) => {
        const [begin, end] = back ? [step.to, step.from] : [step.from, step.to];
        return `L${place(x(begin))} ${place(y(sum(step, count)))}H${place(x(end))}`;
      })
      .join("");
  return `M${(line(layer + 1, stretch, false) + line(layer, [...stretch].reverse(), true)).slice(1)}Z`;
}

/** One layer as level pieces, each as wide as its time; gaps stay empty. */
export function lined(steps: readonly Step[], layer: number, x: Scale, y: Scale): string {
  const piece = ({ from, to, values }: Step) =>
    `L${x(from).toFixed(1)} ${y(values?.[layer] ?? 0).toFixed(1)}H${x(to).toFixed(1)}`;
  return stretches(steps)
    .map((stretch) => `M${stretch.map(piece).join("").slice(1)}`)
    .join("");
}

/** The steps with numbers, in pieces without a gap. */
export function stretches<T extends { values: unknown }>(steps: readonly T[]): T[][] {
  const found: T[][] = [];
  steps.forEach((step, at) => {
    if (step.values === null) return;
    const last = found.at(-1);
    if (last !== undefined && at > 0 && steps[at - 1]?.values !== null) last.push(step);
    else found.push([step]);
  });
  return found;
}

function place(value: number): string {
  return String(Math.round(value * 10) / 10);
}
