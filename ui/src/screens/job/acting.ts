// Actions on one job: how they are called, and what is said after them.
import { act, get, problemOf } from "../../api";
import type { OpsJob, OpsJobAnswer } from "../../api.gen";
import { href, under } from "../../router";
import { say } from "../../store";
import { shortId, visible } from "../../text";

export type JobAction = OpsJob["actions"][number];

interface Words {
  /** The button. */
  verb: string;
  done: string;
  /** Whether a dialog comes first. */
  asks: boolean;
}

export const WORDS: Record<JobAction, Words> = {
  retry: { verb: "Retry", done: "Retried", asks: false },
  "run-now": { verb: "Run now", done: "Due now:", asks: false },
  cancel: { verb: "Cancel", done: "Cancelled", asks: false },
  stop: { verb: "Stop", done: "Asked to stop:", asks: true },
  reschedule: { verb: "Reschedule", done: "Rescheduled", asks: true },
  priority: { verb: "Prioritize", done: "Prioritized", asks: true },
  delete: { verb: "Delete", done: "Deleted", asks: true },
};

/** The job after an action; null if it is gone. */
export type Changed = OpsJob | null;

/** Act on a job and say what came of it. `match` is the ETag of what was looked at. */
export async function perform(job: OpsJob, action: JobAction, body: object, match?: string): Promise<Changed> {
  const path = under("/jobs", job.id);
  const after = action === "delete"
    ? await act("DELETE", path, body, match).then(() => null)
    : await act<OpsJobAnswer>("POST", `${path}/${action}`, body, match);
  const text = `${WORDS[action].done} ${visible(job.name)} ${shortId(job.id)}.`;
  say({ tone: "good", text, link: after === null ? undefined : { href: jobHref(job.id), text: "Open" } });
  return after;
}

export function jobHref(id: string): string {
  return href(under("/jobs", id));
}

/** After a refusal: say why, and find out what the job is now; undefined if that cannot be known. */
export async function refused(job: OpsJob, error: unknown): Promise<Changed | undefined> {
  const problem = problemOf(error);
  say({ tone: "bad", text: problem.sentence, link: { href: jobHref(job.id), text: "Open" } });
  if (problem.status === 404) return null;
  if (problem.status !== 409 && problem.status !== 412) return undefined;
  return get<OpsJobAnswer>(under("/jobs", job.id)).catch(() => undefined);
}
