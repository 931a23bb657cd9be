// Fields of dialogs.
import type { Signal } from "@preact/signals";

/** What an input needs to show a text and to change it. */
export function bound(text: Signal<string>) {
  return {
    value: text.value,
    onInput: (event: { currentTarget: { value: string } }) => {
      text.value = event.currentTarget.value;
    },
  };
}

/** The note of an action, for the audit trail. */
export function NoteField({ value, onInput }: { value: string; onInput: (text: string) => void }) {
  return (
    <label class="field">
      Note
      <input
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
        maxLength={500}
        placeholder="for the audit trail, optional"
      />
    </label>
  );
}
