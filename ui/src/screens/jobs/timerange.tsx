// The time filter: which time of a job, from when and until when. Presets become times, so that a link stays what it is.
import { useSignal } from "@preact/signals";
import { fromField, toField } from "../../datefield";
import { place, type Parts } from "../../router";
import { now, zone } from "../../store";
import { FILTERS } from "../../tables";
import { refilter } from "./refilter";
import { Choice } from "../../parts/choice";

const FIELDS = FILTERS.filter(({ kind }) => kind === "since").map(
  ({ key, label }) => [key.replace(/From$/, ""), label.replace(/ after$/, "")] as const,
);
const HOUR = 3_600_000;
const PRESETS = [
  [HOUR / 4, "last 15 min"],
  [HOUR, "last hour"],
  [24 * HOUR, "last 24 h"],
  [7 * 24 * HOUR, "last 7 days"],
] as const;

export function TimeRange() {
  const { query } = place.value;
  const used = FIELDS.find(([field]) => query.has(`${field}From`) || query.has(`${field}To`))?.[0];
  const chosen = useSignal<string>(used ?? "");
  // The arrow keys go from one preset to the next, so the field must show the one that was chosen.
  const preset = useSignal("");
  const field = used ?? chosen.value;
  const set = (to: string, from?: number, until?: number) => {
    chosen.value = to;
    const parts: Parts = {};
    for (const [each] of FIELDS) parts[`${each}From`] = parts[`${each}To`] = undefined;
    if (to !== "") Object.assign(parts, { [`${to}From`]: iso(from), [`${to}To`]: iso(until) });
    refilter(parts);
  };
  const type = (from?: number, until?: number) => {
    preset.value = "";
    set(field, from, until);
  };
  const [from, until] = [momentOf(query, `${field}From`), momentOf(query, `${field}To`)];
  return (
    <>
      <Choice label="Time" value={field} options={[["", "any"], ...FIELDS]} onChange={(to) => set(to, from, until)} />
      {field !== "" && (
        <>
          <MomentField label="From" at={from} onChange={(at) => type(at, until)} />
          <MomentField label="To" at={until} onChange={(at) => type(from, at)} />
          <Choice
            quiet
            label="Preset"
            value={from === undefined ? "" : preset.value}
            options={[["", "last…"], ...PRESETS]}
            onChange={(span) => {
              preset.value = span;
              set(field, span === "" ? undefined : now.value - Number(span));
            }}
          />
        </>
      )}
    </>
  );
}

export function MomentField({
  label,
  at,
  onChange,
}: {
  label: string;
  at: number | undefined;
  onChange: (at: number | undefined) => void;
}) {
  return (
    <label class="choice">
      {label}
      <input
        type="datetime-local"
        step={1}
        value={at === undefined ? "" : toField(at, zone.value)}
        onChange={(event) => onChange(fromField(event.currentTarget.value, zone.value))}
      />
    </label>
  );
}

function momentOf(query: URLSearchParams, key: string): number | undefined {
  const at = Date.parse(query.get(key) ?? "");
  return Number.isNaN(at) ? undefined : at;
}

function iso(at: number | undefined): string | undefined {
  return at === undefined ? undefined : new Date(at).toISOString();
}
