import type { ComponentChildren } from "preact";
import type { OpsJobAnswer } from "../../api.gen";
import { Copy } from "../../parts/copy";
import { Took, When } from "../../parts/when";
import { href } from "../../router";
import { me } from "../../store";
import { shortId, visible } from "../../text";
import { jobHref } from "./acting";

/** All fields that the job has. */
export function Facts({ job }: { job: OpsJobAnswer }) {
  return (
    <section aria-labelledby="facts">
      <h2 id="facts">Facts</h2>
      <dl class="facts">
        {factsOf(job).map(([label, value]) => <div key={label}><dt>{label}</dt><dd>{value}</dd></div>)}
      </dl>
    </section>
  );
}

type Fact = [label: string, value: ComponentChildren];

function factsOf(job: OpsJobAnswer): Fact[] {
  const facts: (Fact | false)[] = [
    ["Id", <><code>{visible(job.id)}</code><Copy text={job.id} what="the id" /></>],
    ["Name", <a href={href("/queue", { name: job.name })}>{visible(job.name)}</a>],
    ["Stored as", visible(job.status)],
    ...times(job),
    job.waitMs != null && ["Waited", <Took ms={job.waitMs} />],
    job.durationMs != null && ["Ran", <Took ms={job.durationMs} />],
    ["Attempts begun", job.attempt.toLocaleString("en-GB")],
    ["Failures", `${job.failCount.toLocaleString("en-GB")} of at most ${job.maxAttempts.toLocaleString("en-GB")}`],
    ...rest(job),
  ];
  return facts.filter((fact) => fact !== false);
}

function times(job: OpsJobAnswer): Fact[] {
  const known: [string, string | null | undefined][] = [
    ["Created", job.createdAt], ["Changed", job.updatedAt], ["Due", job.nextRunAt], ["Started", job.startedAt],
    ["Ended", job.finishedAt], ["Heartbeat", job.lastHeartbeat], ["May start until", job.expiresAt],
  ];
  return known.filter(([, at]) => at != null).map(([label, at]) => [label, <><When at={at} as="absolute" /> <span class="faint"><When at={at} /></span></>]);
}

function rest(job: OpsJobAnswer): (Fact | false)[] {
  const { related, recurring } = job;
  return [
    job.claimedBy != null && ["Instance", <a href={href("/instances", { id: job.claimedBy })}>{visible(job.claimedBy)}</a>],
    job.heartbeatIntervalMs != null && ["Heartbeat every", <Took ms={job.heartbeatIntervalMs} />],
    job.priority != null && ["Priority", job.priority],
    job.uniqueKey != null && ["Unique key", <><code>{visible(job.uniqueKey)}</code> <a href={href("/jobs", { name: job.name, uniqueKey: job.uniqueKey })}>its other jobs</a></>],
    related?.sameKey != null && related.sameKey.length > 0 && ["Active with this key", related.sameKey.map((id) => <a key={id} class="id" href={jobHref(id)}>{shortId(id)}</a>)],
    recurring != null && ["Recurring", <>{visible(recurring.words ?? recurring.cron ?? "")} <code>{visible(recurring.cron ?? "")}</code> {visible(recurring.timezone ?? "")} <a href={href(`/schedules/${encodeURIComponent(job.id)}`)}>its schedule</a></>],
    related?.schedule != null && ["Schedule", <a href={href(`/schedules/${encodeURIComponent(related.schedule)}`)}>{shortId(related.schedule)}</a>],
    related?.group != null && ["Failed like", <a href={href(`/failures/${encodeURIComponent(related.group)}`)}>its group of failures</a>],
    job.crashCount != null && ["Crashes", job.crashCount],
    job.snoozeCount != null && ["Snoozed", job.snoozeCount],
    job.parked != null && ["Waits because", visible(job.parked.why)],
    job.stop != null && ["Asked to stop", visible(job.stop.reason ?? "yes")],
    job.cancelledBy != null && ["Cancelled by", visible(job.cancelledBy)],
    job.cancelReason != null && ["Cancelled because", visible(job.cancelReason)],
    job.traceparent != null && ["Trace", <Trace traceparent={job.traceparent} />],
  ];
}

/** `links["trace"]` is the operator's own: an address with {trace_id} in it. */
function Trace({ traceparent }: { traceparent: string }) {
  const id = traceparent.split("-")[1] ?? traceparent;
  const link = me.value?.links["trace"];
  const text = <code>{visible(id)}</code>;
  if (link === undefined) return <>{text}<Copy text={id} what="the trace id" /></>;
  const address = link.includes("{trace_id}") ? link.replace("{trace_id}", encodeURIComponent(id)) : link + encodeURIComponent(id);
  return <><a href={address} target="_blank" rel="noreferrer">{text}</a><Copy text={id} what="the trace id" /></>;
}
