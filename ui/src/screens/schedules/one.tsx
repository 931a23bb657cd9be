// One schedule: when it runs, what the clocks do to it, how it went, and what may be done.
import { useMemo } from "preact/hooks";
import { at, to } from "../../api";
import type { OpsAuditEntry, OpsOutcome, OpsScheduleAnswer } from "../../api.gen";
import { Answered, useAnswer } from "../../parts/asking";
import { Card } from "../../parts/card";
import { CopyAs, type Request } from "../../parts/copy";
import { useFresh } from "../../parts/fresh";
import { Status } from "../../parts/status";
import { Table, type Column } from "../../parts/table";
import { Trail } from "../../parts/trail";
import { Took, When } from "../../parts/when";
import { href } from "../../router";
import { shortened, shortId, visible } from "../../text";
import { jobHref } from "../../parts/joblink";
import { useTitle } from "../../title";
import { Errors } from "../job/errors";
import { Tree } from "../job/payload";
import { ScheduleActions } from "./actions";
import { changes } from "./editing";
import { Clocks, LastRun, nameOf, Rule, State } from "./parts";
import { Edges, Runs } from "./runs";
import { Facts } from "../../parts/facts";

export function OneSchedule({ id }: { id: string }) {
  const asked = useAnswer(at("/schedules/{id}", { id }));
  useFresh(asked.again, 3_000, asked.problem);
  return (
    <section>
      <p class="crumbs">
        <a href={href("/schedules")}>Schedules</a> / {shortId(id)}
      </p>
      {asked.answer === undefined && <h1>Schedule</h1>}
      <Answered asked={asked}>{(schedule) => <Whole schedule={schedule} again={asked.again} />}</Answered>
    </section>
  );
}

function Whole({ schedule, again }: { schedule: OpsScheduleAnswer; again: () => void }) {
  useTitle(nameOf(schedule));
  const timezone = schedule.timezone ?? "UTC";
  const next = schedule.nextRuns[0];
  const outcomes = useMemo(() => (schedule.outcomes ?? []).toReversed(), [schedule]);
  return (
    <>
      <div class="bar head">
        <h1>{nameOf(schedule, 120)}</h1>
        <State schedule={schedule} />
        <span class="grow" />
        <ScheduleActions schedule={schedule} again={again} />
        <CopyAs ways={() => waysOf(schedule)} />
      </div>
      <Facts
        of={[
          ["Runs", <Rule schedule={schedule} />],
          ["Time zone", visible(timezone)],
          [
            "Next run",
            next === undefined ? (
              "–"
            ) : (
              <>
                <When at={next.at} />
                <br />
                <Clocks run={next} timezone={timezone} />
              </>
            ),
          ],
          ["Last run", <LastRun schedule={schedule} />],
          [
            "Runs so far",
            <>
              {schedule.runCount ?? 0}
              {(schedule.skipCount ?? 0) > 0 && `, ${schedule.skipCount} skipped`}
            </>,
          ],
          [
            "Job",
            <>
              <a href={jobHref(schedule.id)}>{shortId(schedule.id)}</a> of{" "}
              <a href={href("/queue", { name: schedule.name })}>{visible(shortened(schedule.name, 60))}</a>
            </>,
          ],
        ]}
      />
      <div class="columns">
        <div>
          <Runs runs={schedule.nextRuns} timezone={timezone} caption="Next runs" />
        </div>
        <div>
          <Card title="Daylight saving">
            {schedule.cron == null ? <p class="faint">Intervals ignore clock changes.</p> : <Edges of={schedule} />}
          </Card>
          <Table
            caption={<h2>Last runs</h2>}
            columns={OUTCOMES}
            rows={outcomes}
            keyOf={(run) => run.at}
            empty="It never ran."
          />
        </div>
      </div>
      <Failed schedule={schedule} />
      <h2>Payload</h2>
      {schedule.payloadHidden === true ? (
        <p class="faint">You may not see payloads.</p>
      ) : schedule.truncated != null ? (
        <p>It is too large to be shown.</p>
      ) : (
        <Tree value={schedule.payload} what="payload" />
      )}
      <Changes entries={schedule.audit ?? []} />
      {!!schedule.audit?.length && <Trail entries={schedule.audit} caption="Audit" />}
    </>
  );
}

/** The schedule, and what its buttons do. */
function waysOf({ id, name, key, actions }: OpsScheduleAnswer): Request[] {
  return [
    { title: "This schedule", path: at("/schedules/{id}", { id }), name, key },
    ...actions
      .filter((each) => each !== "edit")
      .map(
        (each): Request =>
          each === "delete"
            ? { title: "Delete it", ...to("DELETE", "/schedules/{id}", { id }), name, key }
            : { title: TITLES[each], ...to("POST", `/schedules/{id}/${each}`, { id }), body: {}, name, key },
      ),
  ];
}

const TITLES = { "run-now": "Run it now", pause: "Pause it", resume: "Resume it", edit: "" };

const OUTCOMES: readonly Column<OpsOutcome>[] = [
  { title: "Ended", cell: (run) => <When at={run.at} /> },
  { title: "Outcome", cell: (run) => <Status display={visible(run.outcome)} /> },
  { title: "Took", numeric: true, cell: (run) => <Took ms={run.durationMs} /> },
];

/** Why attempts failed: of a schedule that stores jobs, these say it. */
function Failed({ schedule: { id, asJobs } }: { schedule: OpsScheduleAnswer }) {
  const { answer } = useAnswer(asJobs === true ? undefined : at("/jobs/{id}", { id }));
  if (asJobs === true)
    return (
      <p>
        <a href={href("/jobs", { scheduleId: id, status: "failed" })}>Failed jobs of this schedule</a>
      </p>
    );
  return answer === undefined ? null : <Errors job={answer} />;
}

/** How cron, zone and payload were changed, by the trail. */
function Changes({ entries }: { entries: readonly OpsAuditEntry[] }) {
  const found = entries
    .filter((each) => each.outcome === "done")
    .flatMap((entry) => changes(entry.before, entry.after).map((each) => ({ entry, ...each })));
  if (found.length === 0) return null;
  return (
    <section>
      <h2>Changes</h2>
      <ul>
        {found.map(({ entry, what, from, to }) => (
          <li key={entry.id + what} class="change">
            <span>
              <strong>{what}</strong> by {visible(entry.actor)} <When at={entry.at} />
            </span>
            <del>{visible(from)}</del>
            <ins>{visible(to)}</ins>
          </li>
        ))}
      </ul>
    </section>
  );
}
