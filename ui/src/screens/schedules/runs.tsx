import { useMemo } from "preact/hooks";
import type { OpsRun, OpsScheduleAnswer } from "../../api.gen";
import { Table, type Column } from "../../parts/table";
import { When } from "../../parts/when";
import { visible } from "../../text";
import { localOf } from "./parts";

/** Times to come: by the schedule's clocks, by the reader's, and how soon. */
export function Runs({ runs, timezone, caption }: { runs: readonly OpsRun[]; timezone: string; caption: string }) {
  const columns = useMemo<Column<OpsRun>[]>(() => [
    { title: `In ${visible(timezone)}`, cell: (run) => <span class="number-left">{localOf(run)}</span> },
    { title: "Here", cell: (run) => <When at={run.at} as="absolute" /> },
    { title: "How soon", cell: (run) => <When at={run.at} /> },
  ], [timezone]);
  return <Table scrolls={caption} caption={caption} columns={columns} rows={runs} keyOf={(run) => run.at} empty="No run is to come." />;
}

type Changes = Pick<OpsScheduleAnswer, "edges" | "quietEdges">;

/** What the next changes of the clocks do to a schedule, also where that is nothing. */
export function Edges({ of: { edges, quietEdges }, timezone }: { of: Changes; timezone: string }) {
  const found: { at: string; effect: string; kind?: string }[] = [...(edges ?? []), ...(quietEdges ?? [])];
  if (found.length === 0) return <p class="faint">The clocks of {visible(timezone)} do not change within 400 days.</p>;
  return (
    <ul class="edges">
      {found.sort((a, b) => (a.at < b.at ? -1 : 1)).map(({ at, effect, kind }) => (
        <li key={at} class={kind ? "banner warn" : "banner"}>
          {kind && <span aria-hidden="true">{kind === "skipped" ? "⤼ " : "⟲ "}</span>}{visible(effect)} <span class="faint nowrap">(<When brief at={at} />)</span>
        </li>
      ))}
    </ul>
  );
}
