// The columns that all lists of schedules have.
import type { OpsSchedule } from "../../api.gen";
import type { Column } from "../../parts/table";
import { href, under } from "../../router";
import { visible } from "../../text";
import { LastRun, nameOf, NextRun, OutcomeBars, Rule, State } from "./parts";

export const SCHEDULE_COLUMNS: readonly Column<OpsSchedule>[] = [
  {
    title: "Schedule",
    sort: "name",
    cell: (row) => (
      <a href={href(under("/schedules", row.id))} title={nameOf(row, 200)}>
        {nameOf(row, 60)}
      </a>
    ),
  },
  { title: "State", cell: (row) => <State schedule={row} /> },
  {
    title: "Runs",
    cell: (row) => (
      <span>
        <Rule schedule={row} />
        {row.nextRuns.length === 0 && (
          <>
            {" "}
            <span class="faint">{visible(row.timezone ?? "UTC")}</span>
          </>
        )}
      </span>
    ),
  },
  {
    title: "Next run",
    sort: "next",
    cell: (row) => (
      <span>
        <NextRun schedule={row} />
      </span>
    ),
  },
  { title: "Last run", priority: 3, cell: (row) => <LastRun schedule={row} /> },
  { title: "Last 10", priority: 2, cell: (row) => <OutcomeBars outcomes={row.outcomes ?? []} /> },
];
