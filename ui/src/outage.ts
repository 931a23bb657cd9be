// Whether there is no database, and whether this reader's session has ended: told by the stream, or by a refusal.
import { computed } from "@preact/signals";
import { refusedSince } from "./refusals";
import { ahead, trouble } from "./stream";

export interface Outage {
  /** By the server's clock. */
  since: number;
  /** What the driver says of it. */
  text?: string;
}

/** A ping says no more than that. */
const NOTHING = "the database does not answer";

/** Set while the database does not answer. */
export const outage = computed<Outage | undefined>(() => {
  if (trouble.value !== undefined) {
    const { since, text } = trouble.value;
    return { since: Date.parse(since), ...(text === NOTHING ? {} : { text }) };
  }
  const since = refusedSince.value;
  return since === undefined ? undefined : { since: since + ahead.value };
});
