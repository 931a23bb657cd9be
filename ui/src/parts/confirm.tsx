import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { problemOf } from "../api";
import { Dialog } from "./dialog";

interface Asked {
  title: string;
  /** What the button says; it begins with the verb. */
  verb: string;
  tone?: "danger" | "primary";
  /** Whether there is a field for a note; it goes into the audit trail. */
  note?: boolean;
  ready?: boolean;
  run: (note: string | undefined) => Promise<void>;
  close: () => void;
  children?: ComponentChildren;
}

/** Ask before something is done. The button is off until the answer; a refusal is shown and the dialog stays. */
export function Confirm({ title, verb, tone = "primary", note = true, ready = true, run, close, children }: Asked) {
  const text = useSignal("");
  const busy = useSignal(false);
  const problem = useSignal<string>();
  const submit = (event: Event) => {
    event.preventDefault();
    busy.value = true;
    run(text.value.trim() || undefined).then(close, (error: unknown) => {
      problem.value = problemOf(error).sentence;
      busy.value = false;
    });
  };
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        {children}
        {note && (
          <label class="field">
            Note
            <input value={text.value} maxLength={500} placeholder="for the audit trail, optional" onInput={(event) => (text.value = event.currentTarget.value)} />
          </label>
        )}
        {problem.value !== undefined && <p class="refused" role="alert">{problem.value}</p>}
        <p class="buttons">
          <button type="button" onClick={close}>Keep as it is</button>
          <button type="submit" class={tone} disabled={busy.value || !ready}>{busy.value ? `${verb} …` : verb}</button>
        </p>
      </form>
    </Dialog>
  );
}
