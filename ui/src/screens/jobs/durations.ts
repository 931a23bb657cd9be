// Durations as people type them: "30s". Pure.

const UNITS: readonly [unit: string, ms: number][] = [
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
  ["ms", 1],
];

/** The milliseconds of "500ms", "1.5s", "5m" or "2h"; undefined of anything else. */
export function parsedDuration(text: string): number | undefined {
  const [, number = "", unit = ""] = /^(\d+(?:\.\d+)?)(ms|[smh])$/.exec(text) ?? [];
  const size = UNITS.find(([each]) => each === unit)?.[1];
  return size === undefined ? undefined : Math.round(Number(number) * size);
}

/** The shortest text that means this; what is no number stays as it is. */
export function typedDuration(ms: string): string {
  const given = Number(ms);
  if (ms === "" || !Number.isInteger(given)) return ms;
  const [unit, size] = UNITS.find(([, size]) => given >= size && given % size === 0) ?? ["ms", 1];
  return `${given / size}${unit}`;
}
