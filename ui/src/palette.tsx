// Go anywhere and find anything by typing. It never destroys anything.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "./api";
import type { OpsFound, OpsSearch } from "./api.gen";
import { copy } from "./clipboard";
import { screens } from "./nav";
import { Dialog } from "./parts/dialog";
import { recent, titleOf, visitHref } from "./recent";
import { go, href, place, under, withQuery } from "./router";
import { overlay } from "./shortcuts";
import { say, setZone, shortcuts, theme } from "./store";
import { paused, togglePause } from "./stream";
import { shortened, visible } from "./text";
import { useUid } from "./parts/uid";

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
  const close = () => (overlay.value = undefined);
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
        class="palette-text" role="combobox" aria-label="Type a name, an id or a command" aria-expanded="true" aria-controls={id} aria-autocomplete="list"
        aria-activedescendant={entries.length === 0 ? undefined : `${id}-${at}`} autocomplete="off" spellcheck={false} placeholder="Type a name, an id or a command"
        value={text.value} onKeyDown={onKey} onInput={(event) => ([text.value, chosen.value] = [event.currentTarget.value, 0])}
      />
      <ul id={id} class="palette" role="listbox" aria-label="Found">
        {entries.map((entry, index) => (
          <li key={`${entry.kind} ${entry.label}`} id={`${id}-${index}`} role="option" aria-selected={index === at} onClick={() => run(entry)}>
            <span class="faint">{entry.kind}</span> <span class="grow">{entry.label}</span> {entry.hint !== undefined && <kbd>{entry.hint}</kbd>}
          </li>
        ))}
      </ul>
      <p class="faint" role="status">{entries.length === 0 && "Nothing matches."}</p>
    </Dialog>
  );
}

function matching(text: string): Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return entriesHere().filter((entry) => words.every((word) => `${entry.kind} ${entry.label}`.toLowerCase().includes(word)));
}

/** What there is without asking the server. */
function entriesHere(): Entry[] {
  const copyAs = document.querySelector<HTMLElement>("main [data-copy-as]");
  const here = titleOf(place.value);
  return [
    ...recent.value.filter((each) => each.title !== here).slice(0, 5).map((each) => ({ kind: "recent", label: each.title, run: () => go(visitHref(each)) })),
    ...screens().map(({ title, path, key }) => ({ kind: "go to", label: title, hint: `g ${key}`, run: () => go(href(path)) })),
    { kind: "go to", label: "the id on the clipboard", run: () => void openCopied() },
    { kind: "copy", label: "a link to this view", run: () => void copy(location.href, "a link to this view") },
    ...(copyAs === null ? [] : [{ kind: "copy", label: "this view as…", run: () => copyAs.click() }]),
    { kind: "live", label: paused.value ? "go on" : "pause", hint: "p", run: togglePause },
    ...(["system", "light", "dark"] as const).map((each) => ({ kind: "theme", label: each, run: () => void (theme.value = each) })),
    ...(["local", "utc"] as const).map((each) => ({ kind: "time zone", label: each === "utc" ? "UTC" : "local", run: () => setZone(each) })),
    { kind: "keys", label: shortcuts.value === "on" ? "switch shortcuts off" : "switch shortcuts on", run: () => void (shortcuts.value = shortcuts.value === "on" ? "off" : "on") },
    { kind: "keys", label: "shortcuts, about Monque", hint: "?", run: () => void (overlay.value = "keys") },
  ];
}

async function openCopied(): Promise<void> {
  const text = await navigator.clipboard?.readText().catch(() => undefined);
  const id = /\b[0-9a-f]{24}\b/i.exec(text ?? "")?.[0];
  if (id !== undefined) go(href(`/jobs/${id}`));
  else say({ tone: "bad", text: text === undefined ? "This browser does not let the page read the clipboard." : "There is no job id on the clipboard." });
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
  useEffect(() => {
    const stop = new AbortController();
    if (text === "") found.value = [];
    const timer = setTimeout(() => {
      if (text === "") return;
      get<OpsSearch>(withQuery("/search", { q: text }), stop.signal).then(
        (answer) => (found.value = [...answer.jobs, ...answer.names, ...answer.schedules, ...answer.instances]),
        () => undefined, // the entries of the page are still there
      );
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text]);
  return found.value.map((each) => ({ kind: each.kind === "name" ? "queue" : each.kind, label: visible(shortened(each.label, 120)), run: () => go(PLACES[each.kind](each)) }));
}
