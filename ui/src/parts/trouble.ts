// How badly a queue does, and in which words. Pure.
import type { OpsOutlook, OpsQueueRow } from "../api.gen";

export interface Trouble {
  /** The higher, the worse; 0 where all is well. */
  weight: number;
  words: string;
  tone: "bad" | "warn" | "plain";
}

// A queue whose oldest job waits below this is as quick as people notice.
const SHORT = 10_000;
// A job in ten that fails is more than what retries are for.
const FAILING = 0.1;

/** The one thing to know about a queue: nobody serves it, it is paused, it fails, it is late, it grows. */
export function troubleOf(row: OpsQueueRow, outlook: OpsOutlook | undefined): Trouble {
  const share = failureShare(row) ?? 0;
  const usual = Math.max(SHORT, 3 * (row.waitP95Ms ?? 0));
  if (row.paused) return { weight: row.due > 0 ? 2 : 1, words: "paused", tone: "warn" };
  if (row.due > 0 && row.slots === 0 && row.running === 0) return { weight: 6, words: "nobody serves it", tone: "bad" };
  if (share >= FAILING) return { weight: 4 + share, words: `${Math.round(share * 100)} % fail`, tone: "bad" };
  if (row.due > 0 && row.oldestDueMs > usual) return { weight: 3, words: outlook?.words ?? "late", tone: "warn" };
  if (row.due > row.slots && (outlook?.duePerMin ?? 0) >= 1)
    return { weight: 2, words: outlook?.words ?? "grows", tone: "warn" };
  return { weight: 0, words: row.due > 0 ? (outlook?.words ?? "") : "", tone: "plain" };
}

/** The queues in the order of their trouble; those that are well by what they do. */
export function byTrouble(
  rows: readonly OpsQueueRow[],
  outlooks: Record<string, OpsOutlook>,
): (OpsQueueRow & { trouble: Trouble })[] {
  return rows
    .map((row) => ({ ...row, trouble: troubleOf(row, outlooks[row.name]) }))
    .sort(
      (a, b) =>
        b.trouble.weight - a.trouble.weight ||
        b.due - a.due ||
        (b.completedPerMin ?? 0) - (a.completedPerMin ?? 0) ||
        (a.name < b.name ? -1 : 1),
    );
}

/** The share of the last minute's runs that failed, with or without another try. */
export function failureShare(row: OpsQueueRow): number | undefined {
  const failed = (row.failedPerMin ?? 0) + (row.retriedPerMin ?? 0);
  const all = failed + (row.completedPerMin ?? 0);
  return all === 0 ? undefined : failed / all;
}
