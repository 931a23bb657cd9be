// Pause and resume: the button, its dialog, and the words for a pause.
import { useSignal } from "@preact/signals";
import { act } from "../api";
import type { OpsPause } from "../api.gen";
import { may, now, offers, say } from "../store";
import { visible } from "../text";
import { Choice } from "./choice";
import { Confirm } from "./confirm";
import type { Request } from "./copy";
import { Opener } from "./opener";
import { When } from "./when";

/** Whether this reader may pause, and pausing is offered. */
export function mayPause(): boolean {
  return may("pause") && offers("pause");
}

const HOUR = 3_600_000;
const LENGTHS: readonly [ms: number, words: string][] = [
  [0, "until it is resumed"], [HOUR / 4, "for 15 minutes"], [HOUR, "for an hour"], [4 * HOUR, "for 4 hours"], [24 * HOUR, "for a day"],
];

interface Given {
  /** Null for all names. */
  name: string | null;
  verb: "Pause" | "Resume";
  done: () => void;
}

/** A button that asks for a note and, to pause, for how long. */
export function PauseButton({ name, verb, done }: Given) {
  const length = useSignal(0);
  const what = name === null ? "all queues" : visible(name);
  const run = async (note: string | undefined) => {
    const until = length.value === 0 ? undefined : new Date(now.value + length.value).toISOString();
    await act("POST", `/queue/${verb.toLowerCase()}`, { name, until, note });
    say({ tone: "good", text: `${verb}d ${what}.` });
    done();
  };
  return (
    <Opener label={<>{verb}{name === null ? ` ${what}` : <span class="hidden-text"> {what}</span>}</>}>
      {(close) => (
        <Confirm title={`${verb} ${what}?`} verb={verb} run={run} close={close}>
          {verb === "Resume" ? <p>What is due starts at once.</p> : (
            <>
              <p>No instance starts {name === null ? "any job" : "a job of this name"} meanwhile. What runs goes on, and new jobs can be stored.</p>
              <Choice field label="How long" value={length.value} options={LENGTHS} onChange={(ms) => (length.value = Number(ms))} />
            </>
          )}
        </Confirm>
      )}
    </Opener>
  );
}

/** What shows the queues, and what its button does. */
export function queueWays(title: string, path = "/queues", name: string | null, pause: OpsPause | null | undefined): Request[] {
  const verb = pause == null ? "pause" : "resume";
  return [{ title, path }, { title: verb === "pause" ? "Pause" : "Resume", method: "POST", path: `/queue/${verb}`, body: { name } }];
}

/** What is paused, until when, why, and by whom. */
export function PauseNote({ pause, done }: { pause: OpsPause; done: () => void }) {
  return (
    <div class="banner warn bar">
      <span class="grow">
        <b>❚❚ {pause.name === null ? "All queues are" : `${visible(pause.name)} is`} paused</b>
        {pause.until != null && <> until <When at={pause.until} as="absolute" /></>}
        {pause.reason != null && <>: {visible(pause.reason)}</>}
        <span class="faint"> (<When at={pause.since} />{pause.by != null && <>, by {visible(pause.by)}</>})</span>
      </span>
      {mayPause() && <PauseButton name={pause.name} verb="Resume" done={done} />}
    </div>
  );
}
