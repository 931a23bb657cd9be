// Pause and resume: the buttons, their dialog, and the words for a pause.
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
  done: () => void;
}

/** A button that asks for how long, and why. */
export function PauseButton({ name, done }: Given) {
  const open = useSignal(false);
  return (
    <>
      <button type="button" onClick={() => (open.value = true)}>{name === null ? "Pause all queues" : <>Pause<span class="hidden-text"> {visible(name)}</span></>}</button>
      {open.value && <PauseDialog name={name} done={done} close={() => (open.value = false)} />}
    </>
  );
}

function PauseDialog({ name, done, close }: Given & { close: () => void }) {
  const length = useSignal(0);
  const what = name === null ? "all queues" : visible(name);
  const pause = async (note: string | undefined) => {
    const until = length.value === 0 ? {} : { until: new Date(now.value + length.value).toISOString() };
    await act("POST", "/queue/pause", { name, ...until, ...(note === undefined ? {} : { note }) });
    say({ tone: "good", text: `Paused ${what}.` });
    done();
  };
  return (
    <Confirm title={`Pause ${what}?`} verb="Pause" run={pause} close={close}>
      <p>No instance starts {name === null ? "any job" : "a job of this name"} meanwhile. What runs goes on, and new jobs can be stored.</p>
      <label class="field">
        How long
        <select value={String(length.value)} onChange={(event) => (length.value = Number(event.currentTarget.value))}>
          {LENGTHS.map(([text, ms]) => <option key={ms} value={String(ms)}>{text}</option>)}
        </select>
      </label>
    </Confirm>
  );
}

export function ResumeButton({ name, done }: Given) {
  const open = useSignal(false);
  const what = name === null ? "all queues" : visible(name);
  const resume = async (note: string | undefined) => {
    const { resumed } = await act<{ resumed: boolean }>("POST", "/queue/resume", { name, ...(note === undefined ? {} : { note }) });
    say(resumed ? { tone: "good", text: `Resumed ${what}.` } : { tone: "plain", text: `${what} was not paused any more.` });
    done();
  };
  return (
    <>
      <button type="button" onClick={() => (open.value = true)}>{name === null ? "Resume all queues" : <>Resume<span class="hidden-text"> {visible(name)}</span></>}</button>
      {open.value && (
        <Confirm title={`Resume ${what}?`} verb="Resume" run={resume} close={() => (open.value = false)}>
          <p>What is due starts at once, as far as there are slots.</p>
        </Confirm>
      )}
    </>
  );
}

/** Who paused, since when, until when and why. */
export function PauseNote({ pause, done }: { pause: OpsPause; done: () => void }) {
  return (
    <div class="banner warn bar">
      <span class="grow">
        <b>❚❚ {pause.name === null ? "All queues are" : `${visible(pause.name)} is`} paused</b>
        {pause.until != null && <> until <When at={pause.until} as="absolute" /></>}
        {pause.reason != null && <>: {visible(pause.reason)}</>}
        <span class="faint"> (<When at={pause.since} />{pause.by != null && <>, through {visible(pause.by)}</>})</span>
      </span>
      {mayPause() && <ResumeButton name={pause.name} done={done} />}
    </div>
  );
}
