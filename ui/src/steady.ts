// Pure.

/** The rows in the order of these keys; those that are new come behind, in their own order. */
export function steady<T>(keys: readonly string[], rows: readonly T[], keyOf: (row: T) => string): T[] {
  const place = new Map(keys.map((key, at) => [key, at]));
  const placeOf = (row: T) => place.get(keyOf(row)) ?? keys.length;
  return [...rows].sort((a, b) => placeOf(a) - placeOf(b));
}
