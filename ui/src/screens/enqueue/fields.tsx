// The fields of a job that is to be stored or changed: its payload, when it is due, and how urgent it is.
import { useSignal, type Signal } from "@preact/signals";
import { Choice } from "../../parts/choice";
import { bound } from "../../parts/fields";
import { names } from "../../parts/namefield";
import { useUid } from "../../parts/uid";
import { now } from "../../store";
import { PriorityField, TimeField } from "../job/options";
import { payloadOf } from "./payload";

/** Any name, with those that there are as suggestions. */
export function JobNameField({ text }: { text: Signal<string> }) {
  const id = useUid();
  return (
    <label class="field">
      Job name
      <input list={id} {...bound(text)} required maxLength={255} spellcheck={false} />
      <datalist id={id}>
        {names().map((each) => (
          <option key={each} value={each} />
        ))}
      </datalist>
    </label>
  );
}

/** A payload as JSON; what is wrong with it stands beside it. */
export function PayloadField({ text }: { text: Signal<string> }) {
  const id = useUid();
  const { problem } = payloadOf(text.value);
  const rows = Math.max(4, Math.min(text.value.split("\n").length + 1, 16));
  return (
    <>
      <label class="field">
        Payload, as JSON
        <textarea
          class="mono"
          rows={rows}
          spellcheck={false}
          aria-invalid={problem !== undefined}
          aria-describedby={id}
          {...bound(text)}
        />
      </label>
      <p id={id} class={problem === undefined ? "faint small" : "bad-text small"} role="status">
        {problem ?? 'A date is {"$date": "2030-05-01T09:00:00Z"}, an id {"$oid": "…"}.'}
      </p>
    </>
  );
}

/** When it is due: undefined as long as `first` counts. */
export function DueField({ first, at }: { first: string; at: Signal<string | undefined> }) {
  const chosen = useSignal(false);
  const soon = new Date(now.peek() + 600_000).toISOString();
  return (
    <>
      <Choice
        field
        label="Due"
        value={chosen.value ? "at" : ""}
        options={[
          ["", first],
          ["at", "at a time…"],
        ]}
        onChange={(to) => {
          chosen.value = to === "at";
          at.value = chosen.value ? soon : undefined;
        }}
      />
      {chosen.value && <TimeField first={soon} onChange={(to) => (at.value = to)} />}
    </>
  );
}

export function Urgency({ value }: { value: Signal<number> }) {
  return <PriorityField value={value.value} onInput={(to) => (value.value = to)} />;
}
