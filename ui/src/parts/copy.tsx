// Buttons that copy: a value, or the same question or action in another language.
import { useSignal } from "@preact/signals";
import { copy } from "../clipboard";
import type { Way } from "../copyas";
import { shown, visible } from "../text";
import { Dialog } from "./dialog";

/** A small button that copies a value; `what` is named to those who do not see the mark, and in the toast. */
export function Copy({ text, what, label }: { text: string; what: string; label?: string }) {
  return (
    <button type="button" class={label === undefined ? "bare" : undefined} title={`Copy ${what}`} aria-label={`Copy ${what}`} onClick={() => void copy(text, what)}>
      {label ?? <CopyMark />}
    </button>
  );
}

function CopyMark() {
  return (
    <svg class="mark" width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
      <rect x="1.5" y="1.5" width="7.5" height="7.5" rx="1" /><path d="M5 11v1.5h7.5V5H11" />
    </svg>
  );
}

/** A button that shows what the page shows, or does, as a command, as Python, as curl and as a link. */
export function CopyAs({ ways, label = "Copy as…" }: { ways: () => readonly Way[]; label?: string }) {
  const open = useSignal(false);
  return (
    <>
      <button type="button" data-copy-as onClick={() => (open.value = true)}>{label}</button>
      {open.value && (
        <Dialog title="Copy as" wide close={() => (open.value = false)}>
          {ways().map((way) => <Ways key={way.title} way={way} />)}
          <p class="buttons"><button type="button" onClick={() => (open.value = false)}>Close</button></p>
        </Dialog>
      )}
    </>
  );
}

const LANGUAGES = [["command", "Command"], ["python", "Python"], ["curl", "curl"], ["link", "Link"]] as const;

function Ways({ way }: { way: Way }) {
  return (
    <section class="ways">
      <h3>{visible(way.title)}</h3>
      {LANGUAGES.map(([key, label]) => {
        const text = way[key];
        return text !== undefined && (
          <div key={key} class="way" data-way={key}>
            <span>{label}</span>
            <pre tabIndex={0}>{shown(text)}</pre>
            <Copy text={text} what={`${way.title.toLowerCase()} as ${label === "Link" ? "a link" : label}`} label="Copy" />
          </div>
        );
      })}
    </section>
  );
}
