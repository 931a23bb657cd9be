// Who did what: entries of the audit trail as a table.
import type { ComponentChildren } from "preact";
import type { OpsAuditEntry } from "../api.gen";
import { visible } from "../text";
import { Table, type Column } from "./table";
import { When } from "./when";

/** The columns that every list of entries has. */
export const TRAIL_COLUMNS: readonly Column<OpsAuditEntry>[] = [
  { title: "Action", cell: (entry) => visible(entry.words) },
  { title: "Who", cell: (entry) => <span>{visible(entry.actor)} <span class="faint">{visible(entry.via)}</span></span> },
  { title: "When", cell: (entry) => <When at={entry.at} as="absolute" /> },
  { title: "Outcome", cell: (entry) => visible(entry.outcome) },
  { title: "Change", cell: changeOf },
  { title: "Note", cell: (entry) => visible(entry.note ?? "") },
];

export function Trail({ entries, caption }: { entries: readonly OpsAuditEntry[]; caption: ComponentChildren }) {
  return <Table caption={caption} columns={TRAIL_COLUMNS} rows={entries} keyOf={(entry) => entry.id} empty="Nothing was done." />;
}

function changeOf({ before, after }: OpsAuditEntry): string {
  const [from, to] = [before?.["status"], after?.["status"]];
  if (typeof from !== "string") return "";
  return visible(typeof to === "string" && to !== from ? `${from} → ${to}` : from);
}
