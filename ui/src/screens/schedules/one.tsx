// One schedule: when it runs, what the clocks do to it, how it went, and what may be done.
import { useMemo } from "preact/hooks";
import type { OpsAuditEntry, OpsJobAnswer, OpsOutcome, OpsScheduleAnswer } from "../../api.gen";
import { scheduleWays } from "../../copyops";
import { Answered, useAnswer } from "../../parts/asking";
import { CopyAs } from "../../parts/copy";
import { useFresh } from "../../parts/fresh";
import { Status } from "../../parts/status";
import { Table, type Column } from "../../parts/table";
import { Trail } from "../../parts/trail";
import { Took, When } from "../../parts/when";
import { href, root } from "../../router";
import { shortened, shortId, visible } from "../../text";
import { jobHref } from "../job/acting";
import { Errors } from "../job/errors";
import { Tree } from "../job/payload";
import { ScheduleActions } from "./actions";
import { changes } from "./editing";
import { Clocks, LastRun, nameOf, Rule, State } from "./parts";
import { Edges, Runs } from "./runs";

export function OneSchedule({ id }: { id: string }) {
  const asked = useAnswer<OpsScheduleAnswer>(`/schedules/${encodeURIComponent(id)}`);
  useFresh(asked.again, 3_000);
  return (
    <section>
      <p class="crumbs"><a href={href("/schedules")}>Schedules</a> / {shortId(id)}</p>
      <Answered asked={asked}>{(schedule) => <Whole schedule={schedule} again={asked.again} />}</Answered>
    </section>
  );
}

function Whole({ schedule, again }: { schedule: OpsScheduleAnswer; again: () => void }) {
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
        <CopyAs ways={() => scheduleWays(schedule, root())} />
      </div>
      <dl class="facts">
        <div><dt>Runs</dt><dd><Rule schedule={schedule} /></dd></div>
        <div><dt>Time zone</dt><dd>{visible(timezone)}</dd></div>
        <div><dt>Next run</dt><dd>{next === undefined ? "–" : <><When at={next.at} /><br /><Clocks run={next} timezone={timezone} /></>}</dd></div>
        <div><dt>Last run</dt><dd><LastRun schedule={schedule} /></dd></div>
        <div><dt>Runs so far</dt><dd>{schedule.runCount ?? 0}{(schedule.skipCount ?? 0) > 0 && `, ${schedule.skipCount} skipped`}</dd></div>
        <div><dt>Job</dt><dd><a href={jobHref(schedule.id)}>{shortId(schedule.id)}</a> of <a href={href("/queue", { name: schedule.name })}>{visible(shortened(schedule.name, 60))}</a></dd></div>
      </dl>
      <div class="columns">
        <div><h2>Next runs</h2><Runs runs={schedule.nextRuns} timezone={timezone} caption={`The next ${schedule.nextRuns.length}`} /></div>
        <div>
          <h2>Daylight saving</h2>
          {schedule.cron == null ? <p class="faint">An interval does not heed the clocks.</p> : <Edges edges={schedule.edges ?? []} timezone={timezone} />}
          <h2>Last runs</h2>
          <Table caption={`The last ${outcomes.length}`} columns={OUTCOMES} rows={outcomes} keyOf={(run) => run.at} empty="It never ran." />
        </div>
      </div>
      <Failed schedule={schedule} />
      <h2>Payload</h2>
      {schedule.payloadHidden === true ? <p class="faint">You may not see payloads.</p> : schedule.truncated != null ? <p>It is too large to be shown.</p> : <Tree value={schedule.payload} what="payload" />}
      <Changes entries={schedule.audit ?? []} />
      {schedule.audit != null && <Trail entries={schedule.audit} caption="Audit" />}
    </>
  );
}

const OUTCOMES: readonly Column<OpsOutcome>[] = [
  { title: "Ended", cell: (run) => <When at={run.at} /> },
  { title: "Outcome", cell: (run) => <Status display={visible(run.outcome)} /> },
  { title: "Took", numeric: true, cell: (run) => <Took ms={run.durationMs} /> },
];

/** Why attempts failed: of a schedule that stores jobs, these say it. */
function Failed({ schedule: { id, asJobs } }: { schedule: OpsScheduleAnswer }) {
  const { answer } = useAnswer<OpsJobAnswer>(asJobs === true ? undefined : `/jobs/${encodeURIComponent(id)}`);
  if (asJobs === true) return <p><a href={href("/jobs", { scheduleId: id, status: "failed" })}>Failed jobs of this schedule</a></p>;
  return answer === undefined ? null : <Errors job={answer} />;
}

/** How cron, zone and payload were changed, by the trail. */
function Changes({ entries }: { entries: readonly OpsAuditEntry[] }) {
  const found = entries.filter((each) => each.outcome === "done").flatMap((entry) => changes(entry.before, entry.after).map((each) => ({ entry, ...each })));
  if (found.length === 0) return null;
  return (
    <section>
      <h2>Changes</h2>
      <ul class="plain-list">
        {found.map(({ entry, what, from, to }) => (
          <li key={entry.id + what} class="change">
            <span><strong>{what}</strong> by {visible(entry.actor)} <When at={entry.at} /></span>
            <del>{visible(from)}</del>
            <ins>{visible(to)}</ins>
          </li>
        ))}
      </ul>
    </section>
  );
}
