// Before, while and after many jobs are changed.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { problemOf, type Problem } from "../../api";
import type { OpsBulkPreview } from "../../api.gen";
import { Refused, Skeleton } from "../../parts/asking";
import { CopyAs } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { plural, shortId, visible } from "../../text";
import { jobHref } from "../job/acting";
import { PriorityField } from "../job/actions";
import { after, BEGIN, bodyOf, BULK_ACTIONS, isTyped, mustType, nextPiece, preview, type BulkAction, type Progress, type Target, type Wish } from "./bulk";
import { Choice } from "../../parts/choice";

interface Given {
  action: BulkAction;
  target: Target;
  /** Told whether anything may have changed. */
  close: (changed: boolean) => void;
}

type Stage = "ask" | "run" | "stopping" | "stopped" | "refused" | "done";

export function BulkDialog({ action, target, close }: Given) {
  const words = BULK_ACTIONS.find((each) => each.action === action)!;
  const seen = useSignal<OpsBulkPreview>();
  const problem = useSignal<Problem>();
  const stage = useSignal<Stage>("ask");
  const progress = useSignal<Progress>(BEGIN);
  const wish = useSignal<Wish>({ action, target, asOf: "", spreadMs: 0, priority: 1, note: "" });
  const look = () => {
    problem.value = undefined;
    preview(action, target).then(
      (found) => {
        seen.value = found;
        wish.value = { ...wish.value, asOf: found.asOf };
      },
      (error: unknown) => (problem.value = problemOf(error)),
    );
  };
  useEffect(() => {
    look();
    return () => (stage.value = "stopping"); // a dialog that is gone sends no more pieces
  }, []);
  const run = () => void go(wish.value, stage, progress, problem);
  const changed = stage.value !== "ask";
  const busy = stage.value === "run" || stage.value === "stopping";
  return (
    <Dialog title={`${words.verb} ${seen.value === undefined ? "jobs" : plural(seen.value.willChange, "job")}`} close={() => close(changed)} locked={busy}>
      {problem.value !== undefined && <Refused problem={problem.value} again={stage.value === "ask" ? look : run} />}
      {seen.value === undefined ? problem.value === undefined && <Skeleton /> : (
        stage.value === "ask"
          ? <Question seen={seen.value} wish={wish} verb={words.verb} run={run} close={() => close(false)} />
          : <Running seen={seen.value} stage={stage} progress={progress.value} run={run} close={() => close(true)} />
      )}
    </Dialog>
  );
}

/** Send pieces until there are no more, somebody stops it, or the server refuses. */
async function go(wish: Wish, stage: Signal<Stage>, progress: Signal<Progress>, problem: Signal<Problem | undefined>): Promise<void> {
  stage.value = "run";
  problem.value = undefined;
  try {
    do progress.value = after(progress.value, await nextPiece(wish, progress.value));
    while (progress.value.next !== null && stage.value === "run");
    stage.value = progress.value.next === null ? "done" : "stopped";
  } catch (error) {
    problem.value = problemOf(error);
    stage.value = "refused";
  }
}

interface QuestionGiven {
  seen: OpsBulkPreview;
  wish: Signal<Wish>;
  verb: string;
  run: () => void;
  close: () => void;
}

const SPREADS = [[0, "all at once"], [60_000, "over 1 min"], [600_000, "over 10 min"], [3_600_000, "over 1 h"], [21_600_000, "over 6 h"]] as const;

function Question({ seen, wish, verb, run, close }: QuestionGiven) {
  const typed = useSignal("");
  const { action, spreadMs, priority, note } = wish.value;
  const { willChange } = seen;
  const set = (parts: Partial<Wish>) => (wish.value = { ...wish.value, ...parts });
  const ready = willChange > 0 && (!mustType(action, willChange) || isTyped(typed.value, willChange));
  const submit = (event: Event) => {
    event.preventDefault();
    if (ready) run();
  };
  return (
    <form onSubmit={submit}>
      <Preview seen={seen} />
      {action === "retry" && <Choice field label="Become due" value={spreadMs} options={SPREADS} onChange={(ms) => set({ spreadMs: Number(ms) })} />}
      {action === "prioritize" && <PriorityField value={priority} onInput={(value) => set({ priority: value })} />}
      <label class="field">
        Note
        <input value={note} maxLength={500} placeholder="for the audit trail, optional" onInput={(event) => set({ note: event.currentTarget.value })} />
      </label>
      {willChange > 0 && mustType(action, willChange) && (
        <label class="field">
          Type the count
          <input value={typed.value} inputMode="numeric" autocomplete="off" placeholder={willChange.toLocaleString("en-GB")} onInput={(event) => (typed.value = event.currentTarget.value)} />
        </label>
      )}
      <p class="buttons">
        <CopyAs ways={() => [{ title: "This action", path: "/bulk", method: "POST", body: { ...bodyOf(wish.value, 5000) } }]} />
        <span class="grow" />
        <button type="button" onClick={close}>Keep as it is</button>
        <button type="submit" class={action === "delete" ? "danger" : "primary"} disabled={!ready}>{verb} {plural(willChange, "job")}</button>
      </p>
    </form>
  );
}

/** How many, of which states and names, and what will not change. */
function Preview({ seen }: { seen: OpsBulkPreview }) {
  const rest = seen.count - seen.willChange;
  return (
    <>
      <p>
        {seen.capped ? "More than " : ""}{plural(seen.count, "job matches", "jobs match")}.{" "}
        {rest > 0 && <>{plural(rest, "of them will", "of them will")} not change. {seen.only} </>}
        What changes from now on is left alone.
      </p>
      <dl class="counts">
        <Counts label="By status" counts={seen.byStatus} />
        <Counts label="By name" counts={seen.byName} />
      </dl>
    </>
  );
}

const MOST_NAMES = 8;

function Counts({ label, counts }: { label: string; counts: Record<string, number> }) {
  const found = Object.entries(counts).filter(([, number]) => number > 0).sort((a, b) => b[1] - a[1]);
  const others = found.slice(MOST_NAMES).reduce((sum, [, number]) => sum + number, 0);
  return (
    <>
      <dt>{label}</dt>
      <dd>
        {found.slice(0, MOST_NAMES).map(([key, number]) => `${number.toLocaleString("en-GB")} ${visible(key)}`).join(", ")}
        {others > 0 && `, ${others.toLocaleString("en-GB")} of ${found.length - MOST_NAMES} other names`}
      </dd>
    </>
  );
}

interface RunningGiven {
  seen: OpsBulkPreview;
  stage: Signal<Stage>;
  progress: Progress;
  run: () => void;
  close: () => void;
}

function Running({ seen, stage, progress, run, close }: RunningGiven) {
  const done = progress.changed + progress.skipped + progress.errors.length;
  const busy = stage.value === "run" || stage.value === "stopping";
  return (
    <>
      <p><progress aria-label="Progress" max={Math.max(seen.count, done, 1)} value={stage.value === "done" ? Math.max(seen.count, done, 1) : done} /></p>
      <p role="status">{WORDS[stage.value]} {plural(progress.changed, "job")} changed{progress.skipped > 0 && `, ${progress.skipped.toLocaleString("en-GB")} left as they were`}{progress.errors.length > 0 && `, ${progress.errors.length} refused`}.</p>
      <Errors errors={progress.errors} />
      <p class="buttons">
        {busy && <button type="button" disabled={stage.value === "stopping"} onClick={() => (stage.value = "stopping")}>Stop</button>}
        {stage.value === "stopped" && <button type="button" onClick={run}>Go on</button>}
        {!busy && <button type="button" class="primary" onClick={close}>Close</button>}
      </p>
    </>
  );
}

const WORDS: Record<Stage, string> = { ask: "", run: "At work:", stopping: "Stopping after this piece:", stopped: "Stopped:", refused: "Interrupted:", done: "Done:" };

function Errors({ errors }: { errors: Progress["errors"] }) {
  if (errors.length === 0) return null;
  return (
    <ul class="errors" aria-label="Jobs that refused">
      {errors.map(({ id, error }) => <li key={id}><a href={jobHref(id)} target="_blank"><code>{shortId(id)}</code></a> {visible(error)}</li>)}
    </ul>
  );
}
