// Go anywhere, find anything and do something by typing. What changes jobs opens its dialog first.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { at, get, problemOf } from "./api";
import { useTyped } from "./parts/asking";
import type { OpsFound } from "./api.gen";
import { copy } from "./clipboard";
import { screens } from "./nav";
import { Dialog } from "./parts/dialog";
import { recent, titleOf, visitHref } from "./recent";
import { go, href, place, under } from "./router";
import { PauseDialog } from "./parts/pausing";
import { dialog, overlay, verbs } from "./shortcuts";
import { may, say, setZone, shortcuts, theme } from "./store";
import { paused, snapshot, togglePause } from "./stream";
import { shortened, visible } from "./text";
import { useUid } from "./parts/uid";
import { views } from "./views";

interface Entry {
  kind: string;
  label: string;
  hint?: string;
  run: () => void;
}

// Who types pauses for about this long between two words; the server has 150 ms for an answer.
const PAUSE = 120;
const MOST = 40;

export function Palette() {
  const id = useUid();
  const text = useSignal("");
  const chosen = useSignal(0);
  const found = useFound(text.value.trim());
  const entries = [...found, ...matching(text.value)].slice(0, MOST);
  const at = Math.min(chosen.value, entries.length - 1);
  // The event that a dialog is closed comes later: another one may be open by then.
  const close = () => void (overlay.value === "palette" && (overlay.value = undefined));
  const run = (entry: Entry | undefined) => {
    if (entry === undefined) return;
    close();
    // The dialog gives the focus back as it goes; what opens another one comes after that.
    setTimeout(entry.run);
  };
  const move = (to: number) => {
    chosen.value = (to + entries.length) % entries.length;
    document.getElementById(`${id}-${chosen.value}`)?.scrollIntoView({ block: "nearest" });
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") move(at + 1);
    else if (event.key === "ArrowUp") move(at - 1);
    else if (event.key === "Enter") run(entries[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to, find or do" close={close}>
      <input
        class="palette-text"
        role="combobox"
        aria-label="Type a name, an id or a command"
        aria-expanded="true"
        aria-controls={id}
        aria-autocomplete="list"
        aria-activedescendant={entries.length === 0 ? undefined : `${id}-${at}`}
        autocomplete="off"
        spellcheck={false}
        placeholder="Type a name, an id or a command"
        value={text.value}
        onKeyDown={onKey}
        onInput={(event) => ([text.value, chosen.value] = [event.currentTarget.value, 0])}
      />
      <ul id={id} class="palette" role="listbox" aria-label="Found">
        {entries.map((entry, index) => (
          <li
            key={`${entry.kind} ${entry.label}`}
            id={`${id}-${index}`}
            role="option"
            aria-selected={index === at}
            onClick={() => run(entry)}
          >
            <span class="faint">{entry.kind}</span> <span class="grow">{entry.label}</span>{" "}
            {entry.hint !== undefined && <kbd>{entry.hint}</kbd>}
          </li>
        ))}
      </ul>
      <p class="faint" role="status">
        {entries.length === 0 && "Nothing matches."}
      </p>
    </Dialog>
  );
}

function matching(text: string): Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const all = words.length === 0 ? entriesHere() : [...entriesHere(), ...verbsOfQueues()];
  return all.filter((entry) => words.every((word) => `${entry.kind} ${entry.label}`.toLowerCase().includes(word)));
}

/** What there is without asking the server. */
function entriesHere(): Entry[] {
  const copyAs = document.querySelector<HTMLElement>("main [data-copy-as]");
  const here = titleOf(place.value);
  return [
    ...verbs.value.map(({ label, run }) => ({ kind: "do", label: `${label}…`, run })),
    ...(may("enqueue") ? [{ kind: "do", label: "new job…", run: () => void open(newJob) }] : []),
    ...(may("enqueue") && may("schedule")
      ? [{ kind: "do", label: "new schedule…", run: () => void open(newSchedule) }]
      : []),
    ...views.value.map((each) => ({ kind: "view", label: visible(each.title), run: () => go(visitHref(each)) })),
    ...recent.value
      .filter((each) => each.title !== here)
      .slice(0, 5)
      .map((each) => ({ kind: "recent", label: each.title, run: () => go(visitHref(each)) })),
    ...screens().map(({ title, path, key }) => ({
      kind: "go to",
      label: title,
      hint: `g ${key}`,
      run: () => go(href(path)),
    })),
    { kind: "go to", label: "the id on the clipboard", run: () => void openCopied() },
    { kind: "copy", label: "a link to this view", run: () => void copy(location.href, "a link to this view") },
    ...(copyAs === null ? [] : [{ kind: "copy", label: "this view as…", run: () => copyAs.click() }]),
    { kind: "live", label: paused.value ? "resume" : "pause", hint: "p", run: togglePause },
    ...(["system", "light", "dark"] as const).map((each) => ({
      kind: "theme",
      label: each,
      run: () => void (theme.value = each),
    })),
    ...(["local", "utc"] as const).map((each) => ({
      kind: "time zone",
      label: each === "utc" ? "UTC" : "local",
      run: () => setZone(each),
    })),
    {
      kind: "keys",
      label: shortcuts.value === "on" ? "switch shortcuts off" : "switch shortcuts on",
      run: () => void (shortcuts.value = shortcuts.value === "on" ? "off" : "on"),
    },
    { kind: "keys", label: "shortcuts, about Monque", hint: "?", run: () => void (overlay.value = "keys") },
  ];
}

/** What can be done with all jobs of a name. Each opens its dialog, whatever screen is open. */
function verbsOfQueues(): Entry[] {
  return [...(snapshot.value?.rows.values() ?? [])].flatMap((row) => {
    const name = visible(shortened(row.name, 80));
    const verb = row.paused ? "Resume" : "Pause";
    const found: Entry[] = [];
    if (may("pause"))
      found.push({ kind: "do", label: `${verb.toLowerCase()} ${name}…`, run: () => openPause(row.name, verb) });
    if (may("retry") && may("retryBulk") && (row.failed ?? 0) > 0)
      found.push({ kind: "do", label: `retry failed ${name}…`, run: () => void open(() => retryFailed(row.name)) });
    if (may("enqueue"))
      found.push({ kind: "do", label: `new job ${name}…`, run: () => void open(() => newJob(row.name)) });
    return found;
  });
}

const closeDialog = () => (dialog.value = undefined);

function openPause(name: string, verb: "Pause" | "Resume"): void {
  dialog.value = <PauseDialog name={name} verb={verb} done={() => undefined} close={closeDialog} />;
}

/** Open a dialog of a screen that may not be there yet. */
async function open(load: () => Promise<ComponentChildren>): Promise<void> {
  try {
    dialog.value = await load();
  } catch (error) {
    say({ tone: "bad", text: problemOf(error).sentence });
  }
}

async function retryFailed(name: string) {
  const { BulkDialog } = await import("./screens/jobs/bulkdialog");
  return <BulkDialog action="retry" target={{ filter: { name, status: ["failed"] } }} close={closeDialog} />;
}

async function newJob(name?: string) {
  const { NewJob } = await import("./screens/enqueue/enqueue");
  return <NewJob name={name} close={closeDialog} />;
}

async function newSchedule() {
  const { NewSchedule } = await import("./screens/schedules/new");
  return <NewSchedule close={closeDialog} done={() => undefined} />;
}

async function openCopied(): Promise<void> {
  const text = await navigator.clipboard?.readText().catch(() => undefined);
  const id = /\b[0-9a-f]{24}\b/i.exec(text ?? "")?.[0];
  if (id !== undefined) go(href(`/jobs/${id}`));
  else
    say({
      tone: "bad",
      text: text === undefined ? "The clipboard cannot be read." : "No job id is on the clipboard.",
    });
}

const PLACES: Record<OpsFound["kind"], (found: OpsFound) => string> = {
  job: ({ id }) => href(under("/jobs", id ?? "")),
  name: ({ name }) => href("/queue", { name: name ?? "" }),
  schedule: ({ id }) => href(under("/schedules", id ?? "")),
  instance: ({ id }) => href("/instance", { id: id ?? "" }),
};

/** What the server finds for a text. */
function useFound(text: string): Entry[] {
  const found = useSignal<readonly OpsFound[]>([]);
  const ask = (stop: AbortSignal) => {
    if (text === "") found.value = [];
    else
      get(at("/search", { q: text }), stop).then(
        (answer) => (found.value = [...answer.jobs, ...answer.names, ...answer.schedules, ...answer.instances]),
        () => undefined, // the entries of the page are still there
      );
  };
  useTyped(ask, [text], PAUSE);
  return (text === "" ? [] : found.value).map((each) => ({
    kind: each.kind === "name" ? "queue" : each.kind,
    label: visible(shortened(each.label, 120)),
    run: () => go(PLACES[each.kind](each)),
  }));
}
