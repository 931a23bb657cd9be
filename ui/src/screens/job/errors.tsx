import { useSignal } from "@preact/signals";
import type { OpsAttempt, OpsJobAnswer } from "../../api.gen";
import { Copy } from "../../parts/copy";
import { When } from "../../parts/when";
import { shortened, shown, visible } from "../../text";
import { partsOf } from "./traceback";

const FEW = 5;

/** Why each attempt did not succeed, the newest first. */
export function Errors({ job }: { job: OpsJobAnswer }) {
  const all = useSignal(false);
  const failed = (job.attempts ?? []).filter((each) => each.error != null).reverse();
  if (failed.length === 0) {
    if (job.failureReason == null) return null;
    return (
      <section aria-labelledby="errors">
        <h2 id="errors">Error</h2>
        <pre class="block" tabIndex={0}>
          {shown(job.failureReason)}
        </pre>
      </section>
    );
  }
  const most = all.value ? failed.length : FEW;
  return (
    <section aria-labelledby="errors">
      <h2 id="errors">Errors</h2>
      {failed.slice(0, most).map((attempt, index) => (
        <OneError key={attempt.number} attempt={attempt} open={index === 0} hidden={job.payloadHidden === true} />
      ))}
      {failed.length > most && (
        <button type="button" onClick={() => (all.value = true)}>
          Show {failed.length - most} more
        </button>
      )}
    </section>
  );
}

function OneError({ attempt, open, hidden }: { attempt: OpsAttempt; open: boolean; hidden: boolean }) {
  const { error } = attempt;
  if (error == null) return null;
  const reason = `${error.type}${error.message == null ? "" : `: ${error.message}`}`;
  return (
    <details class="error" open={open}>
      <summary>
        <span class="faint">
          Attempt {attempt.number}, {attempt.outcome.replace("_", " ")} <When at={attempt.finishedAt} />
        </span>{" "}
        <strong>{visible(shortened(reason, 400))}</strong>
      </summary>
      {error.traceback == null ? (
        <p class="faint">{hidden ? "You may not see it." : "No traceback is stored."}</p>
      ) : (
        <Traceback text={error.traceback} />
      )}
    </details>
  );
}

function Traceback({ text }: { text: string }) {
  return (
    <div class="traceback">
      <Copy text={text} what="the traceback" label="Copy the traceback" />
      {partsOf(text).map((part, index) =>
        part.library ? (
          <details key={index}>
            <summary>{part.frames === 1 ? "1 frame" : `${part.frames} frames`} of libraries</summary>
            <pre tabIndex={0}>{shown(part.text)}</pre>
          </details>
        ) : (
          <pre key={index} tabIndex={0}>
            {shown(part.text)}
          </pre>
        ),
      )}
    </div>
  );
}
