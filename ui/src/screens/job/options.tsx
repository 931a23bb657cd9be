import { useSignal } from "@preact/signals";
import type { OpsBulkBody, OpsJob } from "../../api.gen";
import { fromField, toField } from "../../datefield";
import { now, zone as preferred } from "../../store";
import type { Operation } from "../../tables";
import { absolute, relative, type Zone } from "../../time";
import { Choice } from "../../parts/choice";

const MINUTE = 60_000;
const SOON = [
  [10 * MINUTE, "in 10 min"],
  [60 * MINUTE, "in 1 h"],
  [24 * 60 * MINUTE, "in 24 h"],
] as const;

/** Values of options, by their names in a body. */
export type Values = Partial<OpsBulkBody>;

/** The values to begin with: those of the job, if it is about one. */
export function firstOf({ options }: Operation, job?: OpsJob): Values {
  const time = new Date(Math.max(Date.parse(job?.nextRunAt ?? "") || 0, now.value)).toISOString();
  const first: Partial<Record<(typeof options)[number]["kind"], unknown>> = {
    priority: job === undefined ? 1 : (job.priority ?? 0),
    time,
  };
  return Object.fromEntries(options.map(({ name, kind }) => [name, first[kind]]));
}

export function isComplete({ options }: Operation, values: Values): boolean {
  return options.every(({ name, required }) => !required || values[name] !== undefined);
}

interface Props {
  operation: Operation;
  values: Values;
  /** About one job: there is nothing to spread. */
  single?: boolean;
  onChange: (values: Values) => void;
}

/** The fields of an operation's dialog. */
export function OptionFields({ operation, values, single, onChange }: Props) {
  return (
    <>
      {operation.options.map(({ name, kind }) => {
        const set = (value: unknown) => onChange({ ...values, [name]: value });
        if (kind === "priority") return <PriorityField value={Number(values[name])} onInput={set} />;
        if (kind === "time") return <TimeField first={String(values[name])} onChange={set} />;
        if (single || kind !== "duration") return null;
        return (
          <Choice
            field
            label="Become due"
            value={Number(values[name] ?? 0)}
            options={SPREADS}
            onChange={(ms) => set(Number(ms) || undefined)}
          />
        );
      })}
    </>
  );
}

/** A date and a time in a zone, or a while from now; undefined as long as there is none. */
export function TimeField({ first, onChange }: { first: string; onChange: (at: string | undefined) => void }) {
  const zone = useSignal<Zone>(preferred.value);
  const text = useSignal(toField(Date.parse(first), zone.value));
  const at = fromField(text.value, zone.value);
  const write = (to: string) => {
    text.value = to;
    const at = fromField(to, zone.value);
    onChange(at === undefined ? at : new Date(at).toISOString());
  };
  const change = (to: Zone) => {
    if (at !== undefined) text.value = toField(at, to);
    zone.value = to;
  };
  return (
    <>
      <p class="bar">
        {SOON.map(([away, words]) => (
          <button key={words} type="button" onClick={() => write(toField(now.value + away, zone.value))}>
            {words}
          </button>
        ))}
      </p>
      <label class="field">
        Date and time
        <input
          type="datetime-local"
          step={1}
          required
          value={text.value}
          onInput={(event) => write(event.currentTarget.value)}
        />
      </label>
      <Choice
        field
        label="Zone"
        value={zone.value}
        onChange={(to) => change(to as Zone)}
        options={[
          ["local", `${Intl.DateTimeFormat().resolvedOptions().timeZone} (this browser)`],
          ["utc", "UTC"],
        ]}
      />
      {at !== undefined && (
        <p class="faint">
          {absolute(at, zone.value, now.value)}, {relative(at, now.value)}
        </p>
      )}
    </>
  );
}

const SPREADS = [
  [0, "all at once"],
  [60_000, "over 1 min"],
  [600_000, "over 10 min"],
  [3_600_000, "over 1 h"],
  [21_600_000, "over 6 h"],
] as const;

export function PriorityField({ value, onInput }: { value: number; onInput: (value: number) => void }) {
  return (
    <label class="field">
      Priority, from 0 (normal) to 9 (first)
      <input
        type="number"
        min={0}
        max={9}
        required
        value={value}
        onInput={(event) => onInput(Number(event.currentTarget.value))}
      />
    </label>
  );
}
