// What an edit of a schedule asks the server for. Pure.
import type { OpsScheduleAnswer, OpsSchedulePutBody } from "../../api.gen";

interface Fields {
  cron: string;
  timezone: string;
  /** The text of the payload; undefined if nobody touched it. */
  payload: string | undefined;
}

/** The body with what differs from the schedule; without one, why there is none. */
export function changeOf(
  schedule: OpsScheduleAnswer,
  { cron, timezone, payload }: Fields,
): { body?: OpsSchedulePutBody; problem?: string } {
  const body: OpsSchedulePutBody = {};
  if (cron.trim() !== (schedule.cron ?? "")) body.cron = cron.trim();
  if (timezone.trim() !== (schedule.timezone ?? "UTC")) body.timezone = timezone.trim();
  if (payload !== undefined) {
    // A redacted value would be stored as it is shown, over the secret.
    if (payload.includes("•••")) return { problem: "Write out the hidden values (•••)." };
    try {
      body.payload = JSON.parse(payload);
    } catch {
      return { problem: "The payload is no JSON." };
    }
  }
  return Object.keys(body).length === 0 ? {} : { body };
}

export interface Change {
  what: string;
  from: string;
  to: string;
}

/** What an edit changed, by the trail. */
export function changes(
  before: Record<string, unknown> | null | undefined,
  after: Record<string, unknown> | null | undefined,
): Change[] {
  return ["cron", "timezone", "payload"].flatMap((what) => {
    const [from, to] = [before?.[what], after?.[what]].map(text);
    return from === to || from === undefined || to === undefined ? [] : [{ what, from, to }];
  });
}

function text(value: unknown): string | undefined {
  return value === undefined ? undefined : typeof value === "string" ? value : JSON.stringify(value);
}
