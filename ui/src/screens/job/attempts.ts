import type { OpsAttempt } from "../../api.gen";

/** Two pages as one, in order; pages overlap where an attempt ended between them. Pure. */
export function joined(older: readonly OpsAttempt[], newer: readonly OpsAttempt[]): OpsAttempt[] {
  const seen = new Set(newer.map(keyOf));
  return [...older.filter((each) => !seen.has(keyOf(each))), ...newer];
}

/** The number alone is not enough: others may have written attempts without one. */
function keyOf({ number, startedAt, finishedAt }: OpsAttempt): string {
  return `${number} ${startedAt} ${finishedAt}`;
}
