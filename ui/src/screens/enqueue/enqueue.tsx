// Storing jobs from the page: a new one, and one that has ended once more with changes.
import { useSignal } from "@preact/signals";
import { act, to } from "../../api";
import type { OpsEnqueued, OpsJobAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { bound } from "../../parts/fields";
import { jobHref } from "../../parts/joblink";
import { may, say } from "../../store";
import { shortId, visible } from "../../text";
import { DueField, JobNameField, PayloadField, Urgency } from "./fields";
import { payloadOf, textOf } from "./payload";

interface Props {
  close: () => void;
}

/** A job with any payload: of this name, or of one that is asked for. */
export function NewJob({ name: given, close }: Props & { name?: string | undefined }) {
  const name = useSignal(given ?? "");
  const text = useSignal("null");
  const due = useSignal<string>();
  const priority = useSignal(0);
  const key = useSignal("");
  const { value, problem } = payloadOf(text.value);
  return (
    <Confirm
      wide
      title={given === undefined ? "New job" : `New ${visible(given)} job`}
      verb="Enqueue"
      ready={problem === undefined && name.value.trim() !== ""}
      close={close}
      run={async (note) => {
        const more = { runAt: due.value, priority: priority.value || undefined, uniqueKey: key.value || undefined };
        tell(await act(to("POST", "/jobs"), { name: given ?? name.value.trim(), payload: value, ...more, note }));
      }}
    >
      {given === undefined && <JobNameField text={name} />}
      <PayloadField text={text} />
      <DueField first="now" at={due} />
      {may("prioritize") && <Urgency value={priority} />}
      <label class="field">
        Unique key
        <input {...bound(key)} maxLength={255} spellcheck={false} placeholder="optional" />
      </label>
    </Confirm>
  );
}

/** A job that has ended once more; what nobody touches is stored as it is, also where it is hidden here. */
export function WithChanges({ job, close }: Props & { job: OpsJobAnswer }) {
  const { id, name } = job;
  const before = textOf(job.payload);
  const text = useSignal(before);
  const due = useSignal<string>();
  const priority = useSignal(job.priority ?? 0);
  const { value, problem } = payloadOf(text.value);
  const changed = text.value === before ? {} : { payload: value };
  return (
    <Confirm
      wide
      title={`Enqueue ${visible(name)} with changes`}
      verb="Enqueue"
      ready={problem === undefined}
      close={close}
      run={async (note) => {
        const more = { runAt: due.value, priority: priority.value || undefined };
        tell(await act(to("POST", "/jobs/{id}/enqueue-again", { id }), { ...changed, ...more, note }));
      }}
    >
      <PayloadField text={text} />
      <DueField first="now" at={due} />
      {may("prioritize") && <Urgency value={priority} />}
    </Confirm>
  );
}

function tell({ id, name, created }: OpsEnqueued): void {
  const text = created ? `Enqueued ${visible(name)} ${shortId(id)}.` : `${shortId(id)} has this key already.`;
  say({ tone: created ? "good" : "bad", text, link: { href: jobHref(id), text: "Open" } });
}
