// The buttons of one job, in a list and on its own page. The server says which there are.
import { useSignal } from "@preact/signals";
import type { OpsJob } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { Dialog } from "../../parts/dialog";
import { shortId, visible } from "../../text";
import { WORDS, perform, refused, type Changed, type JobAction } from "./acting";
import { Reschedule } from "./reschedule";

interface Given {
  job: OpsJob;
  /** The ETag of what was looked at, where it is known. */
  match?: (() => string | undefined) | undefined;
  onChange: (after: Changed) => void;
}

/** Which action is on its way or is asked about, and how to press one. */
export function usePress({ job, match, onChange }: Given) {
  const busy = useSignal(false);
  const asking = useSignal<JobAction>();
  const run = async (action: JobAction, body: object) => onChange(await perform(job, action, body, match?.()));
  const press = (action: JobAction) => {
    if (WORDS[action].asks) {
      asking.value = action;
      return;
    }
    busy.value = true;
    run(action, {})
      .catch(async (error: unknown) => {
        const after = await refused(job, error);
        if (after !== undefined) onChange(after);
      })
      .finally(() => (busy.value = false));
  };
  const dialog = asking.value !== undefined && <Ask action={asking.value} job={job} run={run} close={() => (asking.value = undefined)} />;
  return { busy: busy.value, press, dialog };
}

interface Pressing {
  actions: readonly JobAction[];
  busy: boolean;
  press: (action: JobAction) => void;
}

export function ActionButtons({ actions, busy, press }: Pressing) {
  return (
    <>
      {actions.map((action) => (
        <button key={action} type="button" class={action === "delete" ? "danger" : undefined} disabled={busy} onClick={() => press(action)}>
          {WORDS[action].verb}{WORDS[action].asks ? "…" : ""}
        </button>
      ))}
    </>
  );
}

/** The first action, and the others behind a button: a row has little room. */
export function RowActions(given: Given) {
  const { busy, press, dialog } = usePress(given);
  const more = useSignal(false);
  const first = given.job.actions.find((action) => action !== "delete");
  const others = given.job.actions.filter((action) => action !== first);
  const choose = (action: JobAction) => {
    more.value = false;
    press(action);
  };
  return (
    <span class="row-actions">
      {first !== undefined && <ActionButtons actions={[first]} busy={busy} press={press} />}
      {others.length > 0 && <button type="button" class="bare" aria-label={`More actions for ${shortId(given.job.id)}`} onClick={() => (more.value = true)}>⋯</button>}
      {more.value && (
        <Dialog title={`${visible(given.job.name)} ${shortId(given.job.id)}`} close={() => (more.value = false)}>
          <p class="buttons">
            <ActionButtons actions={given.job.actions} busy={busy} press={choose} />
            <button type="button" onClick={() => (more.value = false)}>Close</button>
          </p>
        </Dialog>
      )}
      {dialog}
    </span>
  );
}

interface AskGiven {
  action: JobAction;
  job: OpsJob;
  run: (action: JobAction, body: object) => Promise<void>;
  close: () => void;
}

function Ask({ action, job, run, close }: AskGiven) {
  const title = `${WORDS[action].verb} ${visible(job.name)} ${shortId(job.id)}?`;
  if (action === "reschedule") return <Reschedule title={title} job={job} run={(body) => run(action, body)} close={close} />;
  if (action === "priority") return <Priority title={title} job={job} run={(body) => run(action, body)} close={close} />;
  const tone = action === "delete" ? "danger" : "primary";
  return (
    <Confirm title={title} verb={WORDS[action].verb} tone={tone} run={(note) => run(action, { note })} close={close}>
      <p>{action === "stop" ? STOPPING : job.status === "processing" ? DELETING_RUNNING : DELETING}</p>
    </Confirm>
  );
}

const STOPPING = "Its handler is cancelled when its owner notices, within seconds.";
const DELETING = "It is removed for good.";
const DELETING_RUNNING = "It is removed for good. Its handler is cancelled when its owner notices, within seconds.";

function Priority({ title, job, run, close }: { title: string; job: OpsJob; run: (body: object) => Promise<void>; close: () => void }) {
  const priority = useSignal(job.priority ?? 0);
  return (
    <Confirm title={title} verb="Prioritize" run={(note) => run({ priority: priority.value, note })} close={close}>
      <PriorityField value={priority.value} onInput={(value) => (priority.value = value)} />
    </Confirm>
  );
}

export function PriorityField({ value, onInput }: { value: number; onInput: (value: number) => void }) {
  return (
    <label class="field">
      Priority, from 0 (normal) to 9 (first)
      <input type="number" min={0} max={9} required value={value} onInput={(event) => onInput(Number(event.currentTarget.value))} />
    </label>
  );
}
