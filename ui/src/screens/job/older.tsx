// A job is shown with its newest attempts; the older ones come when they are wanted.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { grouped } from "../../text";
import { at, get } from "../../api";
import type { OpsAttempt, OpsJobAnswer } from "../../api.gen";
import { usePress } from "../../parts/press";
import { joined } from "./attempts";

/** The job with all attempts that were asked for, and the button that asks for more. */
export function useOlder(job: OpsJobAnswer): { whole: OpsJobAnswer; button: ComponentChildren } {
  const known = useSignal<readonly OpsAttempt[]>([]);
  // The time line is drawn anew for another object, not each second.
  const whole = useMemo(() => ({ ...job, attempts: joined(known.value, job.attempts ?? []) }), [job, known.value]);
  const { attempts } = whole;
  const left = (job.attemptsTotal ?? 0) - attempts.length;
  useEffect(() => {
    // Once somebody looks further back, an attempt that the newest push out of the answer must not leave a gap.
    if (known.peek().length > 0) known.value = joined(known.peek(), job.attempts ?? []);
  }, [job]);
  const { busy, press } = usePress(async () => {
    const page = await get(at("/jobs/{id}/attempts", { id: job.id, skip: attempts.length }));
    known.value = joined(page.attempts, attempts);
  });
  const button = left > 0 && (
    <p class="bar">
      <span class="faint">
        The newest {grouped(attempts.length)} of {grouped(job.attemptsTotal ?? 0)} attempts.
      </span>
      <button type="button" disabled={busy} onClick={press}>
        Show {Math.min(left, PAGE)} older
      </button>
    </p>
  );
  return { whole, button };
}

// The server gives so many at a time.
const PAGE = 50;
