// Who did what, when, on what, how many, and what came of it.
import { useSignal } from "@preact/signals";
import { get } from "../api";
import type { OpsAuditEntry, OpsAuditPage } from "../api.gen";
import { auditWays } from "../copyops";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { usePress } from "../parts/press";
import { Table, type Column } from "../parts/table";
import { TRAIL_COLUMNS } from "../parts/trail";
import { change, href, place, root } from "../router";
import { say } from "../store";
import { plural, shortened, shortId, visible } from "../text";
import { allEntries, jsonLines, MOST_EXPORTED } from "./audit/lines";
import { jobHref } from "./job/acting";

const FILTERS = [["actor", "Actor"], ["action", "Action"], ["job", "Job"]] as const;
const PAGE = 50;

export function Audit() {
  const { query } = place.value;
  const asked = useAnswer<OpsAuditPage>("/audit", questionOf(query, PAGE));
  useFresh(() => {
    if (!query.has("cursor")) asked.again();
  }, 10_000);
  return (
    <section>
      <div class="bar">
        <h1>Audit</h1>
        <span class="grow" />
        <Export />
        <CopyAs ways={() => [auditWays(questionOf(query, PAGE), root())]} />
      </div>
      <div class="bar">
        {FILTERS.map(([key, label]) => (
          <label key={key} class="choice">
            {label}
            <input type="search" value={query.get(key) ?? ""} onChange={(event) => change({ [key]: event.currentTarget.value.trim() || undefined, cursor: undefined })} />
          </label>
        ))}
      </div>
      <Answered asked={asked}>{(answer) => <Page answer={answer} />}</Answered>
    </section>
  );
}

function questionOf(query: URLSearchParams, limit: number): URLSearchParams {
  const asked = new URLSearchParams({ limit: String(limit) });
  for (const key of ["actor", "action", "job", "cursor"]) if (query.has(key)) asked.set(key, query.get(key) as string);
  return asked;
}

function Page({ answer: { entries, nextCursor } }: { answer: OpsAuditPage }) {
  const later = place.value.query.has("cursor");
  return (
    <>
      <Table caption={`${later ? "Older entries" : "The newest entries"}, ${entries.length} on this page`} columns={COLUMNS} rows={entries} keyOf={(entry) => entry.id} empty="Nobody has done anything that matches." />
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

/** All that match, as a file. */
function Export() {
  const count = useSignal(0);
  const { busy, press } = usePress(async () => {
    const ask = (cursor: string | undefined) => {
      const query = questionOf(place.value.query, 100);
      query.delete("cursor");
      if (cursor !== undefined) query.set("cursor", cursor);
      return get<OpsAuditPage>("/audit", query);
    };
    const entries = await allEntries(ask, (found) => (count.value = found));
    save(jsonLines(entries));
    say({ tone: "good", text: `Saved ${plural(entries.length, "entry", "entries")}${entries.length >= MOST_EXPORTED ? ", the newest; `monque audit` has them all" : ""}.` });
  });
  return <button type="button" disabled={busy} onClick={press}>{busy ? `Export … ${count.value}` : "Export as JSON lines"}</button>;
}

function save(text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = "audit.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
}
