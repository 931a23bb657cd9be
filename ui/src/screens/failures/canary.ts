// What a canary says: the newest job of a group was retried, and what became of it. Pure.
import type { OpsJob } from "../../api.gen";

export interface Verdict {
  tone: "good" | "bad" | "plain";
  sentence: string;
  /** Whether it is known now, so that nobody need ask again. */
  isOver: boolean;
}

/** What to think of the group with this fingerprint, by its canary. */
export function verdict(job: OpsJob, fingerprint: string): Verdict {
  const same = job.fingerprint == null || job.fingerprint === fingerprint ? "the same way" : "in another way";
  switch (job.status) {
    case "completed":
      return { tone: "good", sentence: "The canary completed.", isOver: true };
    case "failed":
      return {
        tone: "bad",
        sentence: `The canary failed ${same}. Do not retry the rest yet.`,
        isOver: true,
      };
    case "cancelled":
      return { tone: "plain", sentence: "The canary was cancelled.", isOver: true };
    case "processing":
      return { tone: "plain", sentence: "The canary is running.", isOver: false };
  }
  if (job.failCount > 0)
    return { tone: "bad", sentence: `The canary failed ${same} and is tried again.`, isOver: false };
  return { tone: "plain", sentence: "The canary waits to be picked up.", isOver: false };
}
