// Pause and resume: the button, its dialog, and the words for a pause.
import { useSignal } from "@preact/signals";
import { act, to } from "../api";
import type { OpsPause } from "../api.gen";
import { may, now, say } from "../store";
import { shortened, visible } from "../text";
import { Choice } from "./choice";
import { Confirm } from "./confirm";
import type { Request } from "./copy";
import { Icon } from "./icon";
import { Opener } from "./opener";
import { When } from "./when";

const HOUR = 3_600_000;
const LENGTHS: readonly [ms: number, words: string][] = [
  [0, "until it is resumed"],
  [HOUR / 4, "for 15 minutes"],
  [HOUR, "for an hour"],
  [4 * HOUR, "for 4 hours"],
  [24 * HOUR, "for a day"],
];

interface Props {
  /** Null for all names. */
  name: string | null;
  verb: "Pause" | "Resume";
  done: () => void;
}

/** A button that opens the dialog. */
export function PauseButton({ name, verb, done }: Props) {
  return (
    <Opener
      label={
        <span>
          {verb}
          {name === null ? ` ${wordsFor(name)}` : <span class="hidden-text"> {wordsFor(name)}</span>}…
        </span>
      }
    >
      {(close) => <PauseDialog name={name} verb={verb} done={done} close={close} />}
    </Opener>
  );
}

function wordsFor(name: string | null): string {
  return name === null ? "all queues" : visible(name);
}

/** Asks for a note and, to pause, for how long. */
export function PauseDialog({ name, verb, done, close }: Props & { close: () => void }) {
  const length = useSignal(0);
  const what = wordsFor(name);
  const run = async (note: string | undefined) => {
    const until = length.value === 0 ? undefined : new Date(now.value + length.value).toISOString();
    await act(to("POST", verb === "Pause" ? "/queue/pause" : "/queue/resume"), { name, until, note });
    say({ tone: "good", text: `${verb}d ${what}.` });
    done();
  };
  return (
    <Confirm title={`${verb} ${what}?`} verb={verb} run={run} close={close}>
      {verb === "Resume" ? (
        <p>Jobs that are due start at once.</p>
      ) : (
        <>
          <p>
            No instance starts {name === null ? "any job" : "a job of this name"} meanwhile. Running jobs finish, and
            new jobs can be stored.
          </p>
          <Choice
            field
            label="How long"
            value={length.value}
            options={LENGTHS}
            onChange={(ms) => (length.value = Number(ms))}
          />
        </>
      )}
    </Confirm>
  );
}

/** What shows the queues, and what its button does. */
export function queueWays(
  title: string,
  path = "/queues",
  name: string | null,
  pause: OpsPause | null | undefined,
): Request[] {
  const verb = pause == null ? "pause" : "resume";
  return [
    { title, path },
    { title: verb === "pause" ? "Pause" : "Resume", ...to("POST", `/queue/${verb}`), body: { name } },
  ];
}

/** What is paused, until when, why, and by whom. */
export function PauseNote({ pause, done }: { pause: OpsPause; done: () => void }) {
  return (
    <div class="banner warn bar">
      <span class="grow">
        <b>
          <Icon name="paused" /> {pause.name === null ? "All queues are" : `${visible(pause.name)} is`} paused
        </b>
        {pause.until != null && (
          <>
            {" "}
            until <When at={pause.until} as="absolute" />
          </>
        )}
        {pause.reason != null && <>: {visible(shortened(pause.reason, 300))}</>}
        <span class="faint">
          {" "}
          (<When at={pause.since} />
          {pause.by != null && <>, by {visible(pause.by)}</>})
        </span>
      </span>
      {may("pause") && <PauseButton name={pause.name} verb="Resume" done={done} />}
    </div>
  );
}
