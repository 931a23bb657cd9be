// Changing a job that waits, if it is still what this page shows.
import { useSignal } from "@preact/signals";
import { act, to } from "../../api";
import type { OpsJobAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { jobHref } from "../../parts/joblink";
import { may, say } from "../../store";
import { shortId, visible } from "../../text";
import { DueField, PayloadField, Urgency } from "./fields";
import { payloadOf, textOf } from "./payload";

interface Props {
  job: OpsJobAnswer;
  /** Whether this reader may change the payload. */
  withPayload: boolean;
  close: () => void;
  done: () => void;
}

export function EditJob({ job: now, withPayload, close, done }: Props) {
  const job = useSignal(now).value; // as it was when the dialog was opened
  const { id, name } = job;
  const before = textOf(job.payload);
  const text = useSignal(before);
  const due = useSignal<string>();
  const priority = useSignal(job.priority ?? 0);
  const { value, problem } = payloadOf(text.value);
  const hasSteps = job.steps != null && job.steps.length > 0;
  const changes = {
    ...(text.value === before ? {} : { payload: value }),
    ...(due.value === undefined ? {} : { runAt: due.value }),
    ...(priority.value === (job.priority ?? 0) ? {} : { priority: priority.value }),
  };
  return (
    <Confirm
      wide
      title={`Edit ${visible(name)} ${shortId(id)}`}
      verb="Save"
      ready={problem === undefined && Object.keys(changes).length > 0}
      close={close}
      run={async (note) => {
        await act(to("POST", "/jobs/{id}/edit", { id }), { updatedAt: job.updatedAt ?? "", ...changes, note });
        say({
          tone: "good",
          text: `Changed ${visible(name)} ${shortId(id)}.`,
          link: { href: jobHref(id), text: "Open" },
        });
        done();
      }}
    >
      {hasSteps ? (
        <p class="faint">It has steps, which began with its payload: that stays.</p>
      ) : (
        withPayload && <PayloadField text={text} />
      )}
      <DueField first="as it is" at={due} />
      {may("prioritize") && <Urgency value={priority} />}
    </Confirm>
  );
}
