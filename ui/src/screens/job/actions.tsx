// The buttons of one job, in a list and on its own page. The server says which there are.
import { useSignal } from "@preact/signals";
import type { OpsJob } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { Menu } from "../../parts/menu";
import type { IconName } from "../../parts/icon";
import { shortId, visible } from "../../text";
import { WORDS, perform, refused, type ActionBody, type Changed, type JobAction } from "./acting";
import { firstOf, isComplete, OptionFields } from "./options";

interface Props {
  job: OpsJob;
  /** The ETag of what was looked at, where it is known. */
  match?: (() => string | undefined) | undefined;
  onChange: (after: Changed) => void;
}

/** Which action is on its way or is asked about, and how to press one. */
export function usePress({ job, match, onChange }: Props) {
  const busy = useSignal(false);
  const asking = useSignal<JobAction>();
  const run = async (action: JobAction, body: ActionBody) => onChange(await perform(job, action, body, match?.()));
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
  const dialog = asking.value !== undefined && (
    <Ask action={asking.value} job={job} run={run} close={() => (asking.value = undefined)} />
  );
  const ask = (action: JobAction) => (asking.value = action);
  return { busy: busy.value, press, ask, dialog };
}

interface Pressing {
  actions: readonly JobAction[];
  busy: boolean;
  press: (action: JobAction) => void;
  /** What an action is called here instead. */
  verbs?: Partial<Record<JobAction, string>>;
}

export function ActionButtons({ actions, busy, press, verbs = {} }: Pressing) {
  return (
    <>
      {actions.map((action) => (
        <button
          key={action}
          type="button"
          class={action === "delete" ? "danger" : undefined}
          disabled={busy}
          onClick={() => press(action)}
        >
          {verbs[action] ?? WORDS[action].verb}
          {WORDS[action].asks ? "…" : ""}
        </button>
      ))}
    </>
  );
}

/** The first action, and the others in a menu: a row has little room. */
export function RowActions(props: Props) {
  const { busy, press, dialog } = usePress(props);
  const first = props.job.actions.find((action) => action !== "delete");
  const others = props.job.actions.filter((action) => action !== first);
  const items = others.map((action) => ({
    label: `${WORDS[action].verb}${WORDS[action].asks ? "…" : ""}`,
    icon: ICONS[action],
    tone: action === "delete" ? ("danger" as const) : undefined,
    run: () => press(action),
  }));
  return (
    <span class="row-actions">
      {first !== undefined && <ActionButtons actions={[first]} busy={busy} press={press} />}
      {others.length > 0 && <Menu label={`More actions for ${shortId(props.job.id)}`} groups={[{ items }]} />}
      {dialog}
    </span>
  );
}

const ICONS: Partial<Record<JobAction, IconName>> = {
  "run-now": "play",
  retry: "retrying",
  cancel: "cancelled",
  stop: "stop",
  reschedule: "schedules",
  priority: "bolt",
  delete: "delete",
};

interface AskProps {
  action: JobAction;
  job: OpsJob;
  run: (action: JobAction, body: ActionBody) => Promise<void>;
  close: () => void;
}

function Ask({ action, job, run, close }: AskProps) {
  const operation = WORDS[action];
  const { verb } = operation;
  const values = useSignal(firstOf(operation, job));
  return (
    <Confirm
      title={`${verb} ${visible(job.name)} ${shortId(job.id)}?`}
      verb={verb}
      tone={action === "delete" ? "danger" : "primary"}
      ready={isComplete(operation, values.value)}
      run={(note) => run(action, { ...values.value, note } as ActionBody)}
      close={close}
    >
      {action === "delete" && <p>It is removed for good.</p>}
      {(action === "stop" || (action === "delete" && job.status === "processing")) && (
        <p>Its handler is cancelled when its owner notices, within seconds.</p>
      )}
      <OptionFields single operation={operation} values={values.value} onChange={(to) => (values.value = to)} />
    </Confirm>
  );
}
