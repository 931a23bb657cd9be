// Who did what, when, on what, how many, and what came of it.
import { useSignal } from "@preact/signals";
import { ROOT, at } from "../api";
import type { OpsAuditEntry, OpsAuditPage } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { Choice } from "../parts/choice";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { jobHref } from "../parts/joblink";
import { layout } from "../layout";
import { None } from "../parts/none";
import { Table, type Column } from "../parts/table";
import { Action, Changes, Who } from "../parts/trail";
import { When } from "../parts/when";
import { change, href, place, type Parts } from "../router";
import { now, zone } from "../store";
import { FILTERS } from "../tables";
import { grouped, shortened, shortId, visible } from "../text";
import { ranges } from "./audit/range";
import { MomentField } from "./jobs/timerange";

export function Audit() {
  const { query } = place.value;
  const asked = useAnswer(at("/audit", { ...questionOf(query), cursor: query.get("cursor") ?? undefined }));
  useFresh(() => {
    if (!query.has("cursor")) asked.again();
  }, 10_000);
  return (
    <section>
      <div class="bar">
        <h1>Audit</h1>
        <span class="grow" />
        <a
          class="button"
          href={ROOT + at("/audit/export", questionOf(query))}
          download="audit.jsonl"
          title="The newest 10,000 that match"
        >
          Export as JSON lines
        </a>
        <CopyAs ways={() => [{ title: "These entries", path: asked.address ?? "" }]} />
      </div>
      <Filters />
      <Answered asked={asked}>{(answer) => <Page answer={answer} />}</Answered>
    </section>
  );
}

/** The filters in the address. */
function questionOf(query: URLSearchParams): Parts {
  const one = (key: string) => query.get(key) ?? undefined;
  return { actor: one("actor"), action: query.getAll("action"), job: one("job"), from: one("from"), to: one("to") };
}

function filter(parts: Parts): void {
  change({ ...parts, cursor: undefined });
}

/** On its own: to draw the fields with each answer would take away what somebody is typing into them. */
function Filters() {
  const { query } = place.value;
  const choices = useAnswer(at("/audit/choices")).answer;
  const [actor, actions] = [query.get("actor") ?? "", query.getAll("action").join(" ")];
  // What stands in the address can be chosen, whoever wrote it there.
  const actors = [...new Set([...(choices?.actors ?? []), actor])].filter(Boolean);
  const kinds = (choices?.actions ?? []).map((kind) => [kind.actions.join(" "), kind.words] as const);
  const isOther = actions !== "" && !kinds.some(([names]) => names === actions);
  return (
    <div role="search" aria-label="Filter entries">
      <Times />
      <div class="bar">
        <Choice
          label="Who"
          value={actor}
          options={[["", "anybody"], ...actors.map((each) => [each, visible(shortened(each, 40))] as const)]}
          onChange={(who) => filter({ actor: who || undefined })}
        />
        <Choice
          label="Action"
          value={actions}
          options={[["", "any"], ...(isOther ? [[actions, visible(actions)] as const] : []), ...kinds]}
          onChange={(names) => filter({ action: names === "" ? [] : names.split(" ") })}
        />
        <label class="choice">
          Job
          <input
            type="search"
            placeholder="id of a job"
            value={query.get("job") ?? ""}
            onChange={(event) => filter({ job: event.currentTarget.value.trim() || undefined })}
          />
        </label>
      </div>
    </div>
  );
}

function Times() {
  const { query } = place.value;
  const [from, to] = [query.get("from") ?? undefined, query.get("to") ?? undefined];
  const wanted = useSignal(false);
  const presets = ranges(now.value, zone.value);
  const chosen = presets.find(([, range]) => range.from === from && range.to === to)?.[0];
  const isOther = wanted.value || chosen === undefined;
  const momentOf = (text: string | undefined) => (text === undefined ? undefined : Date.parse(text));
  const iso = (moment: number | undefined) => (moment === undefined ? undefined : new Date(moment).toISOString());
  return (
    <div class="bar">
      <div class="chips" role="group" aria-label="Time">
        {presets.map(([words, range]) => (
          <button
            key={words}
            type="button"
            class="chip"
            aria-pressed={!isOther && words === chosen}
            onClick={() => {
              wanted.value = false;
              filter({ ...range });
            }}
          >
            {words}
          </button>
        ))}
        <button type="button" class="chip" aria-pressed={isOther} onClick={() => (wanted.value = true)}>
          Other…
        </button>
      </div>
      {isOther && (
        <>
          <MomentField label="From" at={momentOf(from)} onChange={(moment) => filter({ from: iso(moment) })} />
          <MomentField label="To" at={momentOf(to)} onChange={(moment) => filter({ to: iso(moment) })} />
        </>
      )}
    </div>
  );
}

function Page({ answer: { entries, nextCursor } }: { answer: OpsAuditPage }) {
  const later = place.value.query.has("cursor");
  return (
    <>
      <Table
        caption={`${later ? "Older entries" : "The newest entries"}, ${entries.length} on this page`}
        columns={COLUMNS}
        rows={entries}
        keyOf={(entry) => entry.id}
        empty="Nothing matches."
      />
      <nav class="pages" aria-label="Pages">
        <button type="button" disabled={!later} onClick={() => change({ cursor: undefined })}>
          Newest
        </button>
        <button type="button" disabled={nextCursor == null} onClick={() => change({ cursor: nextCursor ?? undefined })}>
          Older
        </button>
      </nav>
    </>
  );
}

const COLUMNS: readonly Column<OpsAuditEntry>[] = [
  {
    title: "Action",
    cell: (entry) => (
      <button type="button" class="quiet" title="Only this action" onClick={() => filter({ action: [entry.action] })}>
        <Action entry={entry} />
      </button>
    ),
  },
  {
    title: "Who",
    cell: (entry) => (
      <button type="button" class="quiet" title="Only this person" onClick={() => filter({ actor: entry.actor })}>
        <Who entry={entry} />
      </button>
    ),
  },
  { title: "When", cell: (entry) => <When at={entry.at} as="absolute" /> },
  { title: "On what", cell: (entry) => <OnWhat entry={entry} /> },
  {
    title: "How many",
    numeric: true,
    priority: 3, // with less room it stands in "On what"
    cell: (entry) => (entry.count == null ? <None /> : amountOf(entry)),
  },
  { title: "Change", priority: 2, cell: (entry) => <Changes entry={entry} /> },
  { title: "Note", cell: (entry) => (entry.note == null ? <None /> : visible(shortened(entry.note, 300))) },
];

function amountOf({ count, errors }: OpsAuditEntry): string {
  return `${grouped(count ?? 0)}${(errors ?? 0) > 0 ? `, ${errors} refused` : ""}`;
}

function OnWhat({ entry }: { entry: OpsAuditEntry }) {
  const { jobId, name, filter: jobs } = entry;
  if (name == null && jobId == null && jobs == null) return <None />;
  return (
    <span>
      {layout.value !== "wide" && entry.count != null && <b>{amountOf(entry)} </b>}
      {name != null && <a href={href("/queue", { name })}>{visible(shortened(name, 40))}</a>}{" "}
      {jobId != null && (
        <a class="mono" href={jobHref(jobId)}>
          {shortId(jobId)}
        </a>
      )}
      {jobs != null && <span class="small">jobs with {visible(shortened(worded(jobs), 160))}</span>}
    </span>
  );
}

/** A filter in words: "name charge-card, status failed". */
function worded(jobs: Record<string, unknown>): string {
  return Object.entries(jobs)
    .map(([key, value]) => `${FILTERS.find((each) => each.key === key)?.label ?? key} ${textOf(value)}`)
    .join(", ");
}

function textOf(value: unknown): string {
  if (Array.isArray(value)) return value.map(textOf).join(" or ");
  return typeof value === "string" ? value : JSON.stringify(value);
}
