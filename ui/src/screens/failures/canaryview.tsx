import { useEffect } from "preact/hooks";
import { at } from "../../api";
import { useAnswer } from "../../parts/asking";
import { useFresh } from "../../parts/fresh";
import { JobLink } from "../../parts/joblink";
import { Status } from "../../parts/status";
import { When } from "../../parts/when";
import { plural, shortId, visible } from "../../text";
import { verdict } from "./canary";

interface Props {
  id: string;
  fingerprint: string;
  /** How many of the group are failed now. */
  left: number;
  retryRest: (() => void) | undefined;
  /** Told when the canary has ended. */
  onEnd: () => void;
}

/** Follow the canary to its end, then offer the rest. */
export function CanaryView({ id, fingerprint, left, retryRest, onEnd }: Props) {
  const asked = useAnswer(at("/jobs/{id}", { id }));
  const job = asked.answer;
  const found = job === undefined ? undefined : verdict(job, fingerprint);
  useFresh(asked.again, found?.isOver === true ? 30_000 : 1_000);
  useEffect(() => {
    if (found?.isOver === true) onEnd();
  }, [found?.isOver]);
  if (asked.problem !== undefined && job === undefined)
    return (
      <p class="canary">
        The canary <code>{shortId(id)}</code> is not there any more.
      </p>
    );
  if (job === undefined || found === undefined) return <p class="canary">Looking for the canary …</p>;
  return (
    <section class={`canary ${found.tone}`} aria-label="Canary" role="status">
      <p>
        <strong>{found.sentence}</strong> <JobLink {...job} /> <Status display={job.display} />{" "}
        <When at={job.finishedAt ?? job.nextRunAt} />
      </p>
      {found.tone === "bad" && job.failureReason != null && <p class="faint">{visible(job.failureReason)}</p>}
      {found.tone === "good" && left > 0 && retryRest !== undefined && (
        <p>
          <button type="button" class="primary" onClick={retryRest}>
            Retry the other {plural(left, "job")}…
          </button>
        </p>
      )}
    </section>
  );
}
