import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { type Problem, problemOf } from "../api";
import { Dialog } from "./dialog";
import { NoteField } from "./fields";
import { LogIn } from "./login";

interface Props {
  title: string;
  /** What the button says; it begins with the verb. */
  verb: string;
  tone?: "danger" | "primary";
  /** Whether there is a field for a note; it goes into the audit trail. */
  note?: boolean;
  ready?: boolean;
  wide?: boolean;
  run: (note: string | undefined) => Promise<void>;
  close: () => void;
  children?: ComponentChildren;
}

/** Ask before something is done. The button is off until the answer; a refusal is shown and the dialog stays. */
export function Confirm({
  title,
  verb,
  tone = "primary",
  note = true,
  ready = true,
  wide = false,
  run,
  close,
  children,
}: Props) {
  const text = useSignal("");
  const busy = useSignal(false);
  const problem = useSignal<Problem>();
  const submit = (event: Event) => {
    event.preventDefault();
    busy.value = true;
    run(text.value.trim() || undefined).then(close, (error: unknown) => {
      problem.value = problemOf(error);
      busy.value = false;
    });
  };
  return (
    <Dialog title={title} close={close} wide={wide}>
      <form onSubmit={submit}>
        {children}
        {note && <NoteField value={text.value} onInput={(to) => (text.value = to)} />}
        {problem.value !== undefined && (
          <p class="refused" role="alert">
            {problem.value.sentence} {problem.value.status === 401 && <LogIn />}
          </p>
        )}
        <p class="buttons">
          <button type="button" onClick={close}>
            {verb === "Cancel" ? "Back" : "Cancel"}
          </button>
          <button type="submit" class={tone} disabled={busy.value || !ready}>
            {busy.value ? `${verb} …` : verb}
          </button>
        </p>
      </form>
    </Dialog>
  );
}
