// All schedules: when they run, how they went, and the next day at a glance.
import { useMemo } from "preact/hooks";
import type { OpsSchedule, OpsScheduleList } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Table, type Column } from "../parts/table";
import { change, href, place, under } from "../router";
import { plural, visible } from "../text";
import { Lanes } from "./schedules/lanesview";
import { LastRun, nameOf, NextRun, OutcomeBars, Rule, State, stateOf } from "./schedules/parts";
import "./schedules/schedules.css";

export function Schedules() {
  const asked = useAnswer<OpsScheduleList>("/schedules");
  useFresh(asked.again, 5_000);
  return (
    <section>
      <div class="bar">
        <h1>Schedules</h1>
        <span class="grow" />
        <label class="choice">
          Filter
          <input type="search" placeholder="name, zone or state" value={place.value.query.get("q") ?? ""} onInput={(event) => change({ q: event.currentTarget.value || undefined }, "replace")} />
        </label>
        <CopyAs ways={() => [{ title: "These schedules", path: "/schedules" }]} />
      </div>
      <Answered asked={asked}>{(answer) => <Shown schedules={answer.schedules} />}</Answered>
    </section>
  );
}

function Shown({ schedules }: { schedules: readonly OpsSchedule[] }) {
  const text = (place.value.query.get("q") ?? "").toLowerCase();
  const by = place.value.query.get("sort") === "next" ? "next" : "name";
  const down = place.value.query.get("order") === "desc";
  const rows = useMemo(() => ordered(schedules, text, by, down), [schedules, text, by, down]);
  if (schedules.length === 0) return <p class="empty">There are no schedules. A program declares one with <code>await monque.schedule("0 9 * * *", "report")</code>.</p>;
  return (
    <>
      <Table
        caption={rows.length === schedules.length ? plural(rows.length, "schedule") : `${rows.length} of ${plural(schedules.length, "schedule")}`}
        columns={SCHEDULE_COLUMNS} rows={rows} keyOf={(row) => row.id} order={{ by, down }} empty="Nothing matches."
        onOrder={(order) => change({ sort: order.by, order: order.down ? "desc" : undefined }, "replace")}
      />
      {rows.length > 0 && <Lanes schedules={rows} />}
    </>
  );
}

function ordered(schedules: readonly OpsSchedule[], text: string, by: string, down: boolean): OpsSchedule[] {
  const found = schedules.filter((each) => `${each.name} ${each.key} ${each.timezone} ${stateOf(each)} ${each.cron}`.toLowerCase().includes(text));
  if (by === "next") found.sort((a, b) => ((a.nextRuns[0]?.at ?? "9") < (b.nextRuns[0]?.at ?? "9") ? -1 : 1));
  return down ? found.reverse() : found;
}

/** For all lists of schedules. */
export const SCHEDULE_COLUMNS: readonly Column<OpsSchedule>[] = [
  { title: "Schedule", sort: "name", cell: (row) => <a href={href(under("/schedules", row.id))} title={nameOf(row, 200)}>{nameOf(row, 60)}</a> },
  { title: "State", cell: (row) => <State schedule={row} /> },
  { title: "Runs", cell: (row) => <span><Rule schedule={row} />{row.nextRuns.length === 0 && <> <span class="faint">{visible(row.timezone ?? "UTC")}</span></>}</span> },
  { title: "Next run", sort: "next", cell: (row) => <span><NextRun schedule={row} /></span> },
  { title: "Last run", cell: (row) => <LastRun schedule={row} /> },
  { title: "Last 10", cell: (row) => <OutcomeBars outcomes={row.outcomes ?? []} /> },
];
