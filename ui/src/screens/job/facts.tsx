import type { ComponentChildren } from "preact";
import type { OpsJobAnswer } from "../../api.gen";
import { Copy } from "../../parts/copy";
import { Took, When } from "../../parts/when";
import { href, under } from "../../router";
import { me } from "../../store";
import { grouped, shortId, visible } from "../../text";
import { jobHref } from "../../parts/joblink";
import { labelOf } from "./tree";
import { Facts as All } from "../../parts/facts";

type Value = ComponentChildren;

/** All fields that the job has: those that this page does not know, too. */
export function Facts({ job }: { job: OpsJobAnswer }) {
  const plain = Object.entries(job).filter(
    ([key, value]) => value !== null && (typeof value !== "object" || key === "recurring") && !ELSEWHERE.includes(key),
  );
  const facts: [string, Value][] = [
    ...plain.map(([key, value]): [string, Value] => [
      key === "nextRunAt" && job.status !== "pending" ? "Was due" : labelOf(key),
      shownAs(key, value, job),
    ]),
    ...linksOf(job),
  ];
  return (
    <section aria-labelledby="facts">
      <h2 id="facts">Facts</h2>
      <All of={facts} />
    </section>
  );
}

/** What stands elsewhere on the page, or says nothing to people. */
const ELSEWHERE = [
  "serverTime",
  "display",
  "payload",
  "payloadPreview",
  "payloadHidden",
  "truncated",
  "attemptsTotal",
  "result",
  "resultError",
  "failureReason",
  "fingerprint",
  "scheduleId",
  "cron",
  "timezone",
  "isParked",
  "cancelRequested",
  "cancelRequestedAt",
  "lockedAt",
  "stale",
];

function shownAs(key: string, value: unknown, job: OpsJobAnswer): Value {
  const known = KNOWN[key];
  if (known !== undefined) return known(String(value), job);
  if (key.endsWith("At") || key === "lastHeartbeat")
    return (
      <>
        <When at={String(value)} as="absolute" />{" "}
        <span class="faint">
          <When at={String(value)} />
        </span>
      </>
    );
  if (key.endsWith("Ms")) return <Took ms={value as number} />;
  return visible(typeof value === "number" ? grouped(value) : String(value));
}

const KNOWN: Record<string, (text: string, job: OpsJobAnswer) => Value> = {
  id: (text) => (
    <>
      <code>{visible(text)}</code>
      <Copy text={text} what="the id" />
    </>
  ),
  status: (text) => (text === "processing" ? "running" : visible(text)),
  name: (text) => <a href={href("/queue", { name: text })}>{visible(text)}</a>,
  claimedBy: (text) => <a href={href("/instance", { id: text })}>{visible(text)}</a>,
  uniqueKey: (text, job) => (
    <>
      <code>{visible(text)}</code> <a href={href("/jobs", { name: job.name, uniqueKey: text })}>its other jobs</a>
    </>
  ),
  recurring: (_, { id, recurring }) => (
    <>
      {visible(recurring?.words ?? "")} <code>{visible(recurring?.cron ?? "")}</code>{" "}
      {visible(recurring?.timezone ?? "")} <a href={href(under("/schedules", id))}>its schedule</a>
    </>
  ),
  batch: (text) => <a href={href("/batch", { label: text })}>{visible(text)}</a>,
  traceparent: (text) => <Trace traceparent={text} />,
};

function linksOf({ related, parked, stop }: OpsJobAnswer): [string, Value][] {
  const found: [string, Value][] = [];
  if (related?.sameKey?.length)
    found.push([
      "Active with this key",
      related.sameKey.map((id) => (
        <a key={id} class="id" href={jobHref(id)}>
          {shortId(id)}
        </a>
      )),
    ]);
  if (related?.schedule != null)
    found.push(["Schedule", <a href={href(under("/schedules", related.schedule))}>{shortId(related.schedule)}</a>]);
  if (related?.group != null)
    found.push(["Failed like", <a href={href(under("/failures", related.group))}>its group of failures</a>]);
  if (parked != null) found.push(["Waits because", visible(parked.why)]);
  if (stop != null) found.push(["Asked to stop", visible(stop.reason ?? "yes")]);
  return found;
}

/** `links["trace"]` is the operator's own: an address with {trace_id} in it. */
function Trace({ traceparent }: { traceparent: string }) {
  const id = traceparent.split("-")[1] ?? traceparent;
  const link = me.value?.links.trace;
  const text = <code>{visible(id)}</code>;
  return (
    <>
      {link === undefined ? (
        text
      ) : (
        <a href={link.replace("{trace_id}", encodeURIComponent(id))} target="_blank" rel="noreferrer">
          {text}
        </a>
      )}
      <Copy text={id} what="the trace id" />
    </>
  );
}
