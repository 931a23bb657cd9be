// Which releases there are, by the instances that run them. Pure.
import type { OpsInstance } from "./api.gen";

/** The release whose first instance started last; failures that are new came with it. */
export function newestRelease(instances: readonly OpsInstance[]): string | undefined {
  const first = new Map<string, number>();
  for (const { release, startedAt } of instances) {
    if (release == null || startedAt == null) continue;
    first.set(release, Math.min(first.get(release) ?? Infinity, Date.parse(startedAt)));
  }
  return [...first].sort((a, b) => b[1] - a[1])[0]?.[0];
}

/** How many instances have each value, the most frequent first; those without one are left out. */
export function tally(values: readonly (string | null | undefined)[]): [value: string, count: number][] {
  const counts = new Map<string, number>();
  for (const value of values) if (value != null) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
