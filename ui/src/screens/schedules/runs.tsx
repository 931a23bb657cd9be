import { useMemo } from "preact/hooks";
import type { OpsRun, OpsScheduleAnswer } from "../../api.gen";
import { Icon } from "../../parts/icon";
import { Table, type Column } from "../../parts/table";
import { When } from "../../parts/when";
import { visible } from "../../text";
import { localOf } from "./parts";

/** Times to come: by the schedule's clocks, by the reader's, and how soon. */
export function Runs({ runs, timezone, caption }: { runs: readonly OpsRun[]; timezone: string; caption: string }) {
  const columns = useMemo<Column<OpsRun>[]>(
    () => [
      { title: `In ${visible(timezone)}`, cell: (run) => <span class="number-left">{localOf(run)}</span> },
      { title: "Here", cell: (run) => <When at={run.at} as="absolute" /> },
      { title: "How soon", cell: (run) => <When at={run.at} /> },
    ],
    [timezone],
  );
  return (
    <Table
      scrolls={caption}
      caption={<h2>{caption}</h2>}
      columns={columns}
      rows={runs}
      keyOf={(run) => run.at}
      empty="No run is to come."
    />
  );
}

/** What the next changes of the clocks do to a schedule. */
export function Edges({ of: { edges } }: { of: Pick<OpsScheduleAnswer, "edges"> }) {
  if (!edges?.length) return <p class="faint">No clock change matters within 400 days.</p>;
  return (
    <ul class="edges">
      {edges.map(({ at, effect, kind }) => (
        <li key={at}>
          <Icon name={kind === "skipped" ? "skipped" : "retrying"} /> {visible(effect)}{" "}
          <span class="faint nowrap">
            (<When brief at={at} />)
          </span>
        </li>
      ))}
    </ul>
  );
}
