// One schedule: when it runs, what the clocks do to it, how it went, and what may be done.
import type { OpsAuditEntry, OpsJobAnswer, OpsJobList, OpsScheduleAnswer } from "../../api.gen";
import { scheduleWays } from "../../copyops";
import { Answered, useAnswer } from "../../parts/asking";
import { CopyAs } from "../../parts/copy";
import { useFresh } from "../../parts/fresh";
import { Trail } from "../../parts/trail";
import { Took, When } from "../../parts/when";
import { href, root } from "../../router";
import { shortened, shortId, visible } from "../../text";
import { jobHref } from "../job/acting";
import { Tree } from "../job/payload";
import { ScheduleActions } from "./actions";
import { changes } from "./editing";
import { nameOf } from "./lanesview";
import { Clocks, Outcome, Rule, State } from "./parts";
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
  return (
    <>
      <div class="bar head">
        <h1>{visible(shortened(nameOf(schedule), 120))}</h1>
        <State schedule={schedule} />
        <span class="grow" />
        <ScheduleActions schedule={schedule} again={again} />
        <CopyAs ways={() => scheduleWays(schedule, root())} />
      </div>
      <dl class="facts">
        <div><dt>Runs</dt><dd><Rule schedule={schedule} /></dd></div>
        <div><dt>Time zone</dt><dd>{visible(timezone)}</dd></div>
        <div><dt>Next run</dt><dd>{next === undefined ? "–" : <><When at={next.at} /><br /><Clocks run={next} timezone={timezone} /></>}</dd></div>
        <div><dt>Last run</dt><dd>{schedule.lastRun == null ? "it never ran" : <><Outcome outcome={schedule.lastRun.outcome} /> <When at={schedule.lastRun.at} /></>}</dd></div>
        <div><dt>Runs so far</dt><dd>{schedule.runCount ?? 0}{(schedule.skipCount ?? 0) > 0 && `, ${schedule.skipCount} skipped`}</dd></div>
        <div><dt>Job</dt><dd><a href={jobHref(schedule.id)}>{shortId(schedule.id)}</a> of <a href={href("/queue", { name: schedule.name })}>{visible(shortened(schedule.name, 60))}</a></dd></div>
      </dl>
      <div class="columns">
        <div><h2>Next runs</h2><Runs runs={schedule.nextRuns} timezone={timezone} caption={`The next ${schedule.nextRuns.length}`} /></div>
        <div>
          <h2>Daylight saving</h2>
          {schedule.cron == null ? <p class="faint">An interval does not heed the clocks.</p> : <Edges edges={schedule.edges ?? []} timezone={timezone} />}
          <Outcomes schedule={schedule} />
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

function Outcomes({ schedule: { outcomes } }: { schedule: OpsScheduleAnswer }) {
  const found = (outcomes ?? []).toReversed();
  if (found.length === 0) return null;
  return (
    <>
      <h2>Last runs</h2>
      <div class="table">
        <table>
          <caption class="hidden-text">The last runs, the newest first</caption>
          <thead><tr><th scope="col">Ended</th><th scope="col">Outcome</th><th scope="col" class="number">Took</th></tr></thead>
          <tbody>{found.map((each) => <tr key={each.at}><th scope="row"><When at={each.at} /></th><td><Outcome outcome={each.outcome} /></td><td class="number"><Took ms={each.durationMs} /></td></tr>)}</tbody>
        </table>
      </div>
    </>
  );
}

/** Why runs failed: of a schedule that stores jobs, these; else the attempts of its own. */
function Failed({ schedule }: { schedule: OpsScheduleAnswer }) {
  return schedule.asJobs === true ? <FailedJobs id={schedule.id} /> : <FailedAttempts id={schedule.id} />;
}

function FailedJobs({ id }: { id: string }) {
  const query = new URLSearchParams({ scheduleId: id, status: "failed", limit: "10" });
  const jobs = useAnswer<OpsJobList>("/jobs", query).answer?.jobs ?? [];
  return (
    <Reasons found={jobs.map((job) => ({ at: job.finishedAt, text: job.failureReason, to: jobHref(job.id) }))}>
      <a href={href("/jobs", { scheduleId: id, status: "failed" })}>All failed jobs of it</a>
    </Reasons>
  );
}

function FailedAttempts({ id }: { id: string }) {
  const attempts = useAnswer<OpsJobAnswer>(`/jobs/${encodeURIComponent(id)}`).answer?.attempts ?? [];
  const found = attempts.filter((each) => each.error != null).toReversed();
  return (
    <Reasons found={found.map(({ finishedAt, error }) => ({ at: finishedAt, text: `${error?.type}: ${error?.message ?? ""}`, to: undefined }))}>
      <a href={jobHref(id)}>With tracebacks</a>
    </Reasons>
  );
}

interface Reason {
  at: string | null | undefined;
  text: string | null | undefined;
  to: string | undefined;
}

function Reasons({ found, children }: { found: readonly Reason[]; children: preact.ComponentChildren }) {
  if (found.length === 0) return null;
  return (
    <section>
      <div class="bar"><h2>Failed runs</h2>{children}</div>
      <ul class="plain-list">
        {found.map(({ at, text, to }, index) => <li key={index} class="failing"><span><When at={at} /> <span class="bad-text">✕</span> {to === undefined ? visible(text ?? "–") : <a href={to}>{visible(text ?? "–")}</a>}</span></li>)}
      </ul>
    </section>
  );
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
