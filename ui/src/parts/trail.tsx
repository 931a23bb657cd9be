// Who did what: entries of the audit trail as a table, and the parts of an entry.
import type { ComponentChildren } from "preact";
import type { OpsAuditEntry } from "../api.gen";
import { now, zone } from "../store";
import { shortened, visible } from "../text";
import { absolute, duration } from "../time";
import { None } from "./none";
import { Table, type Column } from "./table";
import { When } from "./when";

const COLUMNS: readonly Column<OpsAuditEntry>[] = [
  { title: "Action", cell: (entry) => <Action entry={entry} /> },
  { title: "Who", cell: (entry) => <Who entry={entry} /> },
  { title: "When", cell: (entry) => <When at={entry.at} as="absolute" /> },
  { title: "Change", priority: 2, cell: (entry) => <Changes entry={entry} /> },
  { title: "Note", cell: (entry) => (entry.note == null ? <None /> : visible(shortened(entry.note, 300))) },
];

export function Trail({ entries, caption }: { entries: readonly OpsAuditEntry[]; caption: ComponentChildren }) {
  return (
    <Table caption={caption} columns={COLUMNS} rows={entries} keyOf={(entry) => entry.id} empty="Nothing was done." />
  );
}

/** An action in words; that it was done goes without saying. */
export function Action({ entry: { words, outcome } }: { entry: OpsAuditEntry }) {
  return (
    <span class="nowrap">
      {visible(shortened(words, 30))}{" "}
      {outcome !== "done" && <span class="flag bad">{visible(shortened(outcome, 24))}</span>}
    </span>
  );
}

export function Who({ entry: { actor, via } }: { entry: OpsAuditEntry }) {
  return (
    <span class="nowrap">
      {visible(shortened(actor, 24))} <span class="faint">{visible(shortened(via, 16))}</span>
    </span>
  );
}

/** Each field that an action has changed: "priority 0 → 9". */
export function Changes({ entry: { changes } }: { entry: OpsAuditEntry }) {
  if (changes.length === 0) return <None />;
  return (
    <ul class="small">
      {changes.map(({ field, before, after }) => (
        <li key={field}>
          <span class="faint">{visible(field)}</span> {before !== undefined && `${shown(field, before)} `}
          {after === undefined ? "removed" : <>→ {shown(field, after)}</>}
        </li>
      ))}
    </ul>
  );
}

const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;

function shown(field: string, value: unknown): string {
  if (field === "every" && typeof value === "number") return duration(value);
  if (typeof value !== "string") return visible(shortened(JSON.stringify(value), 80));
  return TIME.test(value) ? absolute(Date.parse(value), zone.value, now.value) : visible(shortened(value, 80));
}
