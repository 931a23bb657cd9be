import { useSignal } from "@preact/signals";
import { Problem, act } from "../../api";
import type { OpsEnqueued, OpsJobAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { may, say } from "../../store";
import { shortId, visible } from "../../text";
import { jobHref } from "./acting";
import { withNote } from "./actions";

// What the server writes in the place of a secret.
const MASK = "•••";

/** Store a completed job once more. The payload that is stored is the one in the field, which the reader can see and mend. */
export function EnqueueAgain({ job }: { job: OpsJobAnswer }) {
  const asking = useSignal(false);
  if (job.status !== "completed" || !may("enqueue") || job.payloadHidden === true || job.truncated != null) return null;
  return (
    <>
      <button type="button" onClick={() => (asking.value = true)}>Enqueue again…</button>
      {asking.value && <Ask job={job} close={() => (asking.value = false)} />}
    </>
  );
}

function Ask({ job, close }: { job: OpsJobAnswer; close: () => void }) {
  const text = useSignal(JSON.stringify(job.payload ?? null, null, 2));
  const run = async (note: string | undefined) => {
    const { id, name } = await act<OpsEnqueued>("POST", "/jobs", withNote({ name: job.name, payload: parsed(text.value) }, note));
    say({ tone: "good", text: `Enqueued ${visible(name)} ${shortId(id)}.`, link: { href: jobHref(id), text: "Open" } });
  };
  return (
    <Confirm title={`Enqueue ${visible(job.name)} again?`} verb="Enqueue" ready={!text.value.includes(MASK)} run={run} close={close}>
      <p>A new job of this name is stored, due now, with exactly this payload. Secrets are not shown on this page, passwords in addresses neither: put them back in before you store it.</p>
      <label class="field">
        Payload
        <textarea class="mono" rows={10} spellcheck={false} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      </label>
      {text.value.includes(MASK) && <p class="faint">It has “{MASK}” in it, where a secret is hidden.</p>}
    </Confirm>
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem(0, "bad-request", "The payload is no JSON", String(error));
  }
}
