// The trail as JSON lines. Pure but for the question.
import type { OpsAuditEntry, OpsAuditPage } from "../../api.gen";

// More than a browser should hold at once; the command line has them all.
export const MOST_EXPORTED = 10_000;

/** All entries from the newest on, page by page; `onCount` is told how many there are so far. */
export async function allEntries(
  ask: (cursor: string | undefined) => Promise<OpsAuditPage>, onCount: (count: number) => void,
): Promise<OpsAuditEntry[]> {
  const found: OpsAuditEntry[] = [];
  let cursor: string | undefined;
  do {
    const page = await ask(cursor);
    found.push(...page.entries);
    onCount(found.length);
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined && found.length < MOST_EXPORTED);
  return found;
}

export function jsonLines(entries: readonly object[]): string {
  return entries.map((entry) => `${JSON.stringify(entry)}\n`).join("");
}
