import { useSignal } from "@preact/signals";
import { act } from "../../api";
import type { OpsEnqueued, OpsJobAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { may, say } from "../../store";
import { shortId, visible } from "../../text";
import { jobHref } from "./acting";
import { withNote } from "./actions";

/** Store a completed job once more. A payload that is not shown whole must not be stored as it is shown. */
export function EnqueueAgain({ job }: { job: OpsJobAnswer }) {
  const asking = useSignal(false);
  const whole = job.payloadHidden !== true && job.truncated == null && !JSON.stringify(job.payload ?? null).includes("•••");
  if (job.status !== "completed" || !may("enqueue") || !whole) return null;
  const run = async (note: string | undefined) => {
    const { id, name } = await act<OpsEnqueued>("POST", "/jobs", withNote({ name: job.name, payload: job.payload }, note));
    say({ tone: "good", text: `Enqueued ${visible(name)} ${shortId(id)}.`, link: { href: jobHref(id), text: "Open" } });
  };
  return (
    <>
      <button type="button" onClick={() => (asking.value = true)}>Enqueue again…</button>
      {asking.value && (
        <Confirm title={`Enqueue ${visible(job.name)} again?`} verb="Enqueue" run={run} close={() => (asking.value = false)}>
          <p>A new job of this name with the same payload is stored, due now.</p>
        </Confirm>
      )}
    </>
  );
}
