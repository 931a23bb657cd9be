import { useMemo } from "preact/hooks";
import type { OpsEdge, OpsRun } from "../../api.gen";
import { Table, type Column } from "../../parts/table";
import { When } from "../../parts/when";
import { now } from "../../store";
import { visible } from "../../text";
import { clockChanges } from "./clocks";
import { localOf } from "./parts";

/** Times to come: by the schedule's clocks, by the reader's, and how soon. */
export function Runs({ runs, timezone, caption }: { runs: readonly OpsRun[]; timezone: string; caption: string }) {
  const columns = useMemo<Column<OpsRun>[]>(() => [
    { title: `In ${visible(timezone)}`, cell: (run) => <span class="number-left">{localOf(run)}</span> },
    { title: "Here", cell: (run) => <When at={run.at} as="absolute" /> },
    { title: "How soon", cell: (run) => <When at={run.at} /> },
  ], [timezone]);
  return <div class="runs" tabIndex={0} role="region" aria-label={caption}><Table caption={caption} columns={columns} rows={runs} keyOf={(run) => run.at} empty="No run is to come." /></div>;
}

/** What the next changes of the clocks do to a schedule, also where that is nothing. */
export function Edges({ edges, timezone }: { edges: readonly OpsEdge[]; timezone: string }) {
  const changes = useMemo(() => clockChanges(timezone, now.peek()), [timezone]);
  const quiet = changes.filter(({ day }) => !edges.some((edge) => edge.local.startsWith(day)));
  if (edges.length === 0 && quiet.length === 0) return <p class="faint">The clocks of {visible(timezone)} do not change within 400 days.</p>;
  const lines = [
    ...edges.map((edge) => [edge.local, <li key={edge.at} class="banner warn"><span aria-hidden="true">{edge.kind === "skipped" ? "⤼" : "⟲"}</span> {visible(edge.effect)} <span class="faint">(<When at={edge.at} />)</span></li>] as const),
    ...quiet.map(({ day, direction }) => [day, <li key={day} class="banner">{longDay(day)}: the clocks go {direction}; no time of it is skipped or repeated.</li>] as const),
  ];
  return <ul class="edges">{lines.sort(([a], [b]) => (a < b ? -1 : 1)).map(([, line]) => line)}</ul>;
}

function longDay(day: string): string {
  return new Date(`${day}T12:00Z`).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
}
