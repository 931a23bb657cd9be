// A list that is read must not jump: rows are updated where they stand. Which of them still belong there? Pure.
import type { OpsJob, OpsSelection } from "../../api.gen";

/** A row: the job as it is now, and what became of it since the list was asked for. */
export interface Row {
  job: OpsJob;
  /** It does not match the filters any more. */
  moved: boolean;
  /** It is not stored any more. */
  deleted: boolean;
}

/** What is known since the page was asked for; null for a job that is gone. */
export type News = ReadonlyMap<string, OpsJob | null>;

export function rowsOf(jobs: readonly OpsJob[], news: News, asked: OpsSelection, now: number): Row[] {
  return jobs.map((job) => {
    const later = news.get(job.id);
    if (later === undefined) return { job, moved: false, deleted: false };
    if (later === null) return { job, moved: true, deleted: true };
    return { job: later, moved: !matches(later, asked, now), deleted: false };
  });
}

/** Whether a job that matched still does; what never changes (name, key, payload) is not compared. */
export function matches(job: OpsJob, asked: OpsSelection, now: number): boolean {
  const due = job.nextRunAt == null ? undefined : Date.parse(job.nextRunAt);
  const rules = [
    asked.status == null || (asked.status as string[]).includes(job.status),
    asked.due == null || (job.status === "pending" && due !== undefined && (asked.due === "now") === due <= now),
    asked.claimedBy == null || job.claimedBy === asked.claimedBy,
    (asked.claimedAtFrom ?? asked.claimedAtTo) == null || job.status === "processing",
    asked.priority == null || (job.priority ?? 0) >= asked.priority,
    asked.cancelledBy == null || job.cancelledBy === asked.cancelledBy,
    asked.expired == null || asked.expired === (job.status === "pending" && isPast(job.expiresAt, now)),
    asked.waiting == null || asked.waiting === (job.waitsFor != null),
    asked.waitsFor == null || job.waitsFor?.why === asked.waitsFor,
    asked.failed == null || job.status === "failed",
    within(job.updatedAt, asked.updatedAtFrom, asked.updatedAtTo),
    within(job.nextRunAt, asked.nextRunAtFrom, asked.nextRunAtTo),
  ];
  return rules.every(Boolean);
}

function isPast(at: string | null | undefined, now: number): boolean {
  return at != null && Date.parse(at) <= now;
}

// Times of the API are all written alike, so they sort as texts.
function within(
  at: string | null | undefined,
  from: string | null | undefined,
  to: string | null | undefined,
): boolean {
  if (from == null && to == null) return true;
  return at != null && (from == null || at >= from) && (to == null || at <= to);
}

/** What the ids on screen are now: those that no answer names are gone. */
export function newsOf(ids: readonly string[], answered: readonly OpsJob[]): News {
  const found = new Map(answered.map((job) => [job.id, job]));
  return new Map(ids.map((id) => [id, found.get(id) ?? null]));
}

/** How many jobs at the beginning of a list are not on screen: those before the last one that is. */
export function newAbove(head: readonly OpsJob[], known: ReadonlySet<string>): number {
  const last = head.findLastIndex((job) => known.has(job.id));
  return (last < 0 ? head : head.slice(0, last)).filter((job) => !known.has(job.id)).length;
}
