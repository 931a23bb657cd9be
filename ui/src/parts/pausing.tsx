// Pause and resume: the button, its dialog, and the words for a pause.
import { useSignal } from "@preact/signals";
import { act } from "../api";
import type { OpsPause } from "../api.gen";
import { may, me, now, say } from "../store";
import { visible } from "../text";
import { Confirm } from "./confirm";
import { When } from "./when";

/** Whether this reader may pause, and pausing is offered. */
export function mayPause(): boolean {
  return may("pause") && me.value?.offers["pause"] === true;
}

const HOUR = 3_600_000;
const LENGTHS: readonly [text: string, ms: number][] = [
  ["until somebody resumes it", 0], ["for 15 minutes", HOUR / 4], ["for an hour", HOUR], ["for 4 hours", 4 * HOUR], ["for a day", 24 * HOUR],
];

interface Given {
  /** Null for all names. */
  name: string | null;
  verb: "Pause" | "Resume";
  done: () => void;
}

/** A button that asks for a note and, to pause, for how long. */
export function PauseButton({ name, verb, done }: Given) {
  const open = useSignal(false);
  const length = useSignal(0);
  const what = name === null ? "all queues" : visible(name);
  const run = async (note: string | undefined) => {
    const until = length.value === 0 ? {} : { until: new Date(now.value + length.value).toISOString() };
    await act("POST", `/queue/${verb.toLowerCase()}`, { name, ...until, ...(note === undefined ? {} : { note }) });
    say({ tone: "good", text: `${verb}d ${what}.` });
    done();
  };
  return (
    <>
      <button type="button" onClick={() => (open.value = true)}>{verb}{name === null ? ` ${what}` : <span class="hidden-text"> {what}</span>}</button>
      {open.value && (
        <Confirm title={`${verb} ${what}?`} verb={verb} run={run} close={() => (open.value = false)}>
          {verb === "Resume" ? <p>What is due starts at once, as far as there are slots.</p> : (
            <>
              <p>No instance starts {name === null ? "any job" : "a job of this name"} meanwhile. What runs goes on, and new jobs can be stored.</p>
              <label class="field">
                How long
                <select value={String(length.value)} onChange={(event) => (length.value = Number(event.currentTarget.value))}>
                  {LENGTHS.map(([text, ms]) => <option key={ms} value={String(ms)}>{text}</option>)}
                </select>
              </label>
            </>
          )}
        </Confirm>
      )}
    </>
  );
}

/** What is paused, until when, why, and by whom. */
export function PauseNote({ pause, done }: { pause: OpsPause; done: () => void }) {
  return (
    <div class="banner warn bar">
      <span class="grow">
        <b>❚❚ {pause.name === null ? "All queues are" : `${visible(pause.name)} is`} paused</b>
        {pause.until != null && <> until <When at={pause.until} as="absolute" /></>}
        {pause.reason != null && <>: {visible(pause.reason)}</>}
        <span class="faint"> (<When at={pause.since} />{pause.by != null && <>, through {visible(pause.by)}</>})</span>
      </span>
      {mayPause() && <PauseButton name={pause.name} verb="Resume" done={done} />}
    </div>
  );
}
