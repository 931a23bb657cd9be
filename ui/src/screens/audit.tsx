// Who did what, when, on what, how many, and what came of it.
import type { OpsAuditEntry, OpsAuditPage } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Table, type Column } from "../parts/table";
import { TRAIL_COLUMNS } from "../parts/trail";
import { base, change, href, place, withQuery, type Parts } from "../router";
import { shortened, shortId, visible } from "../text";
import { jobHref } from "./job/acting";

const FILTERS = [["actor", "Actor"], ["action", "Action"], ["job", "Job"]] as const;

export function Audit() {
  const { query } = place.value;
  const asked = useAnswer<OpsAuditPage>("/audit", { ...questionOf(query), cursor: query.get("cursor") ?? undefined });
  useFresh(() => {
    if (!query.has("cursor")) asked.again();
  }, 10_000);
  return (
    <section>
      <div class="bar">
        <h1>Audit</h1>
        <span class="grow" />
        <a class="button" href={`${base}api/ops/v1${withQuery("/audit/export", questionOf(query))}`} download="audit.jsonl" title="The newest 10,000 that match">Export as JSON lines</a>
        <CopyAs ways={() => [{ title: "These entries", path: asked.address ?? "" }]} />
      </div>
      <div class="bar">
        {FILTERS.map(([name, label]) => <Filter key={name} name={name} label={label} />)}
      </div>
      <Answered asked={asked}>{(answer) => <Page answer={answer} />}</Answered>
    </section>
  );
}

/** On its own: to draw the field with each answer would take away what somebody is typing into it. */
function Filter({ name, label }: { name: string; label: string }) {
  return (
    <label class="choice">
      {label}
      <input type="search" value={place.value.query.get(name) ?? ""} onChange={(event) => change({ [name]: event.currentTarget.value.trim() || undefined, cursor: undefined })} />
    </label>
  );
}

/** The filters in the address. */
function questionOf(query: URLSearchParams): Parts {
  return Object.fromEntries(FILTERS.map(([key]) => [key, query.get(key) ?? undefined]));
}

function Page({ answer: { entries, nextCursor } }: { answer: OpsAuditPage }) {
  const later = place.value.query.has("cursor");
  return (
    <>
      <Table caption={`${later ? "Older entries" : "The newest entries"}, ${entries.length} on this page`} columns={COLUMNS} rows={entries} keyOf={(entry) => entry.id} empty="Nothing matches." />
      <nav class="pages" aria-label="Pages">
        <button type="button" disabled={!later} onClick={() => change({ cursor: undefined })}>Newest</button>
        <button type="button" disabled={nextCursor == null} onClick={() => change({ cursor: nextCursor ?? undefined })}>Older</button>
      </nav>
    </>
  );
}

const COLUMNS: readonly Column<OpsAuditEntry>[] = [
  ...TRAIL_COLUMNS.filter((column) => column.title !== "Change"),
  { title: "On what", cell: (entry) => <OnWhat entry={entry} /> },
  { title: "How many", numeric: true, cell: ({ count, errors }) => count == null ? <span class="faint">–</span> : `${count.toLocaleString("en-GB")}${(errors ?? 0) > 0 ? `, ${errors} refused` : ""}` },
];

function OnWhat({ entry: { jobId, name, filter, before, after } }: { entry: OpsAuditEntry }) {
  const detail = filter ?? (before == null && after == null ? undefined : { before, after });
  return (
    <span>
      {name != null && <a href={href("/queue", { name })}>{visible(shortened(name, 40))}</a>}{" "}
      {jobId != null && <a class="mono" href={jobHref(jobId)}>{shortId(jobId)}</a>}
      {detail !== undefined && <details><summary>{filter == null ? "Change" : "Filter"}</summary><pre class="block" tabIndex={0}>{visible(JSON.stringify(detail))}</pre></details>}
    </span>
  );
}
