// Before, while and after many jobs are changed.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { bound, NoteField } from "../../parts/fields";
import { problemOf, to, type Problem } from "../../api";
import type { OpsBulkPreview } from "../../api.gen";
import { Refused, Skeleton } from "../../parts/asking";
import { CopyAs } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { OPERATIONS, type Operation } from "../../tables";
import { grouped, plural, shortId, visible } from "../../text";
import { jobHref } from "../../parts/joblink";
import { firstOf, isComplete, OptionFields } from "../job/options";
import {
  after,
  BEGIN,
  bodyOf,
  isTyped,
  mustType,
  nextPiece,
  preview,
  type BulkAction,
  type Progress,
  type Target,
  type BulkOptions,
} from "./bulk";

interface Props {
  action: BulkAction;
  target: Target;
  /** Told whether anything may have changed. */
  close: (changed: boolean) => void;
}

type Stage = "ask" | "run" | "stopping" | "stopped" | "refused" | "done";

export function BulkDialog({ action, target, close }: Props) {
  const operation = OPERATIONS.find((each) => each.name === action) as Operation;
  const { verb } = operation;
  const seen = useSignal<OpsBulkPreview>();
  const problem = useSignal<Problem>();
  const stage = useSignal<Stage>("ask");
  const progress = useSignal<Progress>(BEGIN);
  const options = useSignal<BulkOptions>({ action, target, asOf: "", values: firstOf(operation), note: "" });
  const look = () => {
    problem.value = undefined;
    preview(action, target).then(
      (found) => {
        seen.value = found;
        options.value = { ...options.value, asOf: found.asOf };
      },
      (error: unknown) => (problem.value = problemOf(error)),
    );
  };
  useEffect(() => {
    look();
    return () => (stage.value = "stopping"); // a dialog that is gone sends no more pieces
  }, []);
  const run = () => void go(options.value, stage, progress, problem);
  const changed = stage.value !== "ask";
  const busy = stage.value === "run" || stage.value === "stopping";
  return (
    <Dialog
      title={`${verb} ${seen.value === undefined ? "jobs" : plural(seen.value.willChange, "job")}`}
      close={() => close(changed)}
      locked={busy}
    >
      {problem.value !== undefined && <Refused problem={problem.value} again={stage.value === "ask" ? look : run} />}
      {seen.value === undefined ? (
        problem.value === undefined && <Skeleton />
      ) : stage.value === "ask" ? (
        <Question seen={seen.value} options={options} operation={operation} run={run} close={() => close(false)} />
      ) : (
        <Running seen={seen.value} stage={stage} progress={progress.value} run={run} close={() => close(true)} />
      )}
    </Dialog>
  );
}

/** Send pieces until there are no more, somebody stops it, or the server refuses. */
async function go(
  options: BulkOptions,
  stage: Signal<Stage>,
  progress: Signal<Progress>,
  problem: Signal<Problem | undefined>,
): Promise<void> {
  stage.value = "run";
  problem.value = undefined;
  try {
    do progress.value = after(progress.value, await nextPiece(options, progress.value));
    while (progress.value.next !== null && stage.value === "run");
    stage.value = progress.value.next === null ? "done" : "stopped";
  } catch (error) {
    problem.value = problemOf(error);
    stage.value = "refused";
  }
}

interface QuestionProps {
  seen: OpsBulkPreview;
  options: Signal<BulkOptions>;
  operation: Operation;
  run: () => void;
  close: () => void;
}

function Question({ seen, options, operation, run, close }: QuestionProps) {
  const typed = useSignal("");
  const { action, values, note } = options.value;
  const { verb } = operation;
  const { willChange } = seen;
  const set = (parts: Partial<BulkOptions>) => (options.value = { ...options.value, ...parts });
  const ready =
    willChange > 0 &&
    isComplete(operation, values) &&
    (!mustType(action, willChange) || isTyped(typed.value, willChange));
  const submit = (event: Event) => {
    event.preventDefault();
    if (ready) run();
  };
  return (
    <form onSubmit={submit}>
      <Preview seen={seen} />
      <OptionFields operation={operation} values={values} onChange={(to) => set({ values: to })} />
      <NoteField value={note} onInput={(value) => set({ note: value })} />
      {willChange > 0 && mustType(action, willChange) && (
        <label class="field">
          Type the count
          <input
            ref={focus}
            {...bound(typed)}
            inputMode="numeric"
            autocomplete="off"
            placeholder={grouped(willChange)}
          />
        </label>
      )}
      <p class="buttons">
        <CopyAs
          ways={() => [{ title: "This action", ...to("POST", "/bulk"), body: { ...bodyOf(options.value, 5000) } }]}
        />
        <span class="grow" />
        <button type="button" onClick={close}>
          {action === "cancel" ? "Back" : "Cancel"}
        </button>
        <button type="submit" class={action === "delete" ? "danger" : "primary"} disabled={!ready}>
          {verb} {plural(willChange, "job")}
        </button>
      </p>
    </form>
  );
}

/** Who presses a button that asks for the count types it next. */
const focus = (field: HTMLInputElement | null) => field?.focus();

/** How many, of which states and names, and what will not change. */
function Preview({ seen }: { seen: OpsBulkPreview }) {
  const rest = seen.count - seen.willChange;
  const { processing: running, ...others } = seen.byStatus; // as the pages call it
  return (
    <>
      <p>
        {seen.capped ? "More than " : ""}
        {plural(seen.count, "job matches", "jobs match")}.{" "}
        {rest > 0 && (
          <>
            {plural(rest, "of them will", "of them will")} not change. {seen.only}{" "}
          </>
        )}
        Jobs that change from now on are left alone.
      </p>
      <dl class="counts">
        <Counts label="By status" counts={running === undefined ? others : { running, ...others }} />
        <Counts label="By name" counts={seen.byName} />
      </dl>
    </>
  );
}

const MOST_NAMES = 8;

function Counts({ label, counts }: { label: string; counts: Record<string, number> }) {
  const found = Object.entries(counts)
    .filter(([, number]) => number > 0)
    .sort((a, b) => b[1] - a[1]);
  const others = found.slice(MOST_NAMES).reduce((sum, [, number]) => sum + number, 0);
  return (
    <>
      <dt>{label}</dt>
      <dd>
        {found
          .slice(0, MOST_NAMES)
          .map(([key, number]) => `${grouped(number)} ${visible(key)}`)
          .join(", ")}
        {others > 0 && `, ${grouped(others)} of ${found.length - MOST_NAMES} other names`}
      </dd>
    </>
  );
}

interface RunningProps {
  seen: OpsBulkPreview;
  stage: Signal<Stage>;
  progress: Progress;
  run: () => void;
  close: () => void;
}

function Running({ seen, stage, progress, run, close }: RunningProps) {
  const done = progress.changed + progress.skipped + progress.errors.length;
  const busy = stage.value === "run" || stage.value === "stopping";
  return (
    <>
      <p>
        <progress
          aria-label="Progress"
          max={Math.max(seen.count, done, 1)}
          value={stage.value === "done" ? Math.max(seen.count, done, 1) : done}
        />
      </p>
      <p role="status">
        {WORDS[stage.value]} {plural(progress.changed, "job")} changed
        {progress.skipped > 0 && `, ${grouped(progress.skipped)} left as they were`}
        {progress.errors.length > 0 && `, ${progress.errors.length} refused`}.
      </p>
      <Errors errors={progress.errors} />
      <p class="buttons">
        {busy && (
          <button type="button" disabled={stage.value === "stopping"} onClick={() => (stage.value = "stopping")}>
            Stop
          </button>
        )}
        {stage.value === "stopped" && (
          <button type="button" onClick={run}>
            Go on
          </button>
        )}
        {!busy && (
          <button type="button" class="primary" onClick={close}>
            Close
          </button>
        )}
      </p>
    </>
  );
}

const WORDS: Record<Stage, string> = {
  ask: "",
  run: "At work:",
  stopping: "Stopping after this piece:",
  stopped: "Stopped:",
  refused: "Interrupted:",
  done: "Done:",
};

function Errors({ errors }: { errors: Progress["errors"] }) {
  if (errors.length === 0) return null;
  return (
    <ul class="errors" aria-label="Jobs that could not be changed">
      {errors.map(({ id, error }) => (
        <li key={id}>
          <a href={jobHref(id)} target="_blank">
            <code>{shortId(id)}</code>
          </a>{" "}
          {visible(error)}
        </li>
      ))}
    </ul>
  );
}
