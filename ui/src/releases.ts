// Which releases and versions there are. Pure.

/** How many instances have each value, the most frequent first; those without one are left out. */
export function tally(values: readonly (string | null | undefined)[]): [value: string, count: number][] {
  const counts = new Map<string, number>();
  for (const value of values) if (value != null) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}
