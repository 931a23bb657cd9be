// All schedules: when they run, how they went, and the next day at a glance.
import { useMemo } from "preact/hooks";
import { at } from "../api";
import type { OpsSchedule } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Opener } from "../parts/opener";
import { Table, type Column } from "../parts/table";
import { change, place } from "../router";
import { may } from "../store";
import { plural } from "../text";
import { Later } from "./enqueue/later";
import { Controls } from "./schedules/actions";
import { Lanes } from "./schedules/lanesview";
import { stateOf } from "./schedules/parts";
import { SCHEDULE_COLUMNS } from "./schedules/columns";
import "./schedules/schedules.css";

export function Schedules() {
  const asked = useAnswer(at("/schedules"));
  useFresh(asked.again, 5_000);
  return (
    <section>
      <div class="bar">
        <h1>Schedules</h1>
        <span class="grow" />
        <label class="choice">
          Filter
          <input
            type="search"
            placeholder="name, zone or state"
            value={place.value.query.get("q") ?? ""}
            onInput={(event) => change({ q: event.currentTarget.value || undefined }, "replace")}
          />
        </label>
        {may("schedule") && may("enqueue") && (
          <Opener label="New schedule…">
            {(close) => (
              <Later load={() => import("./schedules/new")}>
                {({ NewSchedule }) => <NewSchedule close={close} done={asked.again} />}
              </Later>
            )}
          </Opener>
        )}
        <CopyAs ways={() => [{ title: "These schedules", path: at("/schedules") }]} />
      </div>
      <Answered asked={asked}>{(answer) => <Shown schedules={answer.schedules} again={asked.again} />}</Answered>
    </section>
  );
}

function Shown({ schedules, again }: { schedules: readonly OpsSchedule[]; again: () => void }) {
  const text = (place.value.query.get("q") ?? "").toLowerCase();
  const by = place.value.query.get("sort") === "next" ? "next" : "name";
  const down = place.value.query.get("order") === "desc";
  const rows = useMemo(() => ordered(schedules, text, by, down), [schedules, text, by, down]);
  const columns = useMemo(() => withActions(again), []);
  if (schedules.length === 0)
    return (
      <p class="empty">
        No schedules. Declare one with <code>await monque.schedule("0 9 * * *", "report")</code>.
      </p>
    );
  return (
    <>
      <Table
        caption={
          rows.length === schedules.length
            ? plural(rows.length, "schedule")
            : `${rows.length} of ${plural(schedules.length, "schedule")}`
        }
        columns={columns}
        rows={rows}
        keyOf={(row) => row.id}
        order={{ by, down }}
        empty="Nothing matches."
        onOrder={(order) => change({ sort: order.by, order: order.down ? "desc" : undefined }, "replace")}
      />
      {rows.length > 0 && <Lanes schedules={rows} />}
    </>
  );
}

function withActions(again: () => void): readonly Column<OpsSchedule>[] {
  const cell = (row: OpsSchedule) => <Controls schedule={row} again={again} />;
  return [...SCHEDULE_COLUMNS, { title: "Actions", actions: true, cell }];
}

function ordered(schedules: readonly OpsSchedule[], text: string, by: string, down: boolean): OpsSchedule[] {
  const found = schedules.filter((each) =>
    `${each.name} ${each.key} ${each.timezone} ${stateOf(each)} ${each.cron}`.toLowerCase().includes(text),
  );
  if (by === "next") found.sort((a, b) => ((a.nextRuns[0]?.at ?? "9") < (b.nextRuns[0]?.at ?? "9") ? -1 : 1));
  return down ? found.reverse() : found;
}
