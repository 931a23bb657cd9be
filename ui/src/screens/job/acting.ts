// Actions on one job: how they are called, and what is said after them.
import { act, at, get, problemOf, to } from "../../api";
import type { OpsJob, OpsNoteBody, OpsPriorityBody, OpsRescheduleBody, OpsRetryBody } from "../../api.gen";
import { jobHref } from "../../parts/joblink";
import { say } from "../../store";
import { OPERATIONS, type Operation } from "../../tables";
import { shortId, visible } from "../../text";

export type JobAction = OpsJob["actions"][number];

export const WORDS = Object.fromEntries(OPERATIONS.map((each) => [each.route, each])) as Record<JobAction, Operation>;

/** The job after an action; null if it is gone. */
export type Changed = OpsJob | null;

/** What an action takes: a note, and a time or a priority where it needs one. */
export type ActionBody = OpsNoteBody | OpsRescheduleBody | OpsPriorityBody | OpsRetryBody;

/** Act on a job and say what came of it. `match` is the ETag of what was looked at. */
export async function perform(job: OpsJob, action: JobAction, body: ActionBody, match?: string): Promise<Changed> {
  const { id } = job;
  const after =
    action === "delete"
      ? await act(to("DELETE", "/jobs/{id}", { id }), body, match).then(() => null)
      : await act(to("POST", `/jobs/{id}/${action}`, { id }), body, match);
  const text = `${WORDS[action].done} ${visible(job.name)} ${shortId(job.id)}.`;
  say({ tone: "good", text, link: after === null ? undefined : { href: jobHref(job.id), text: "Open" } });
  return after;
}

/** After a refusal: say why, and find out what the job is now; undefined if that cannot be known. */
export async function refused(job: OpsJob, error: unknown): Promise<Changed | undefined> {
  const problem = problemOf(error);
  say({ tone: "bad", text: problem.sentence, link: { href: jobHref(job.id), text: "Open" } });
  if (problem.status === 404) return null;
  if (problem.status !== 409 && problem.status !== 412) return undefined;
  return get(at("/jobs/{id}", { id: job.id })).catch(() => undefined);
}
