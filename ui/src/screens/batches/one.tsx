// One batch: how far it is, how fast, what fails in it, and who waits for its end.
import { useSignal } from "@preact/signals";
import { at } from "../../api";
import type { OpsBatch, OpsBatchGroup, OpsJob } from "../../api.gen";
import { Answered, useAnswer } from "../../parts/asking";
import { Card } from "../../parts/card";
import { Copy, CopyAs } from "../../parts/copy";
import { Facts } from "../../parts/facts";
import { useFresh } from "../../parts/fresh";
import { JobLink } from "../../parts/joblink";
import { Status } from "../../parts/status";
import { When } from "../../parts/when";
import { href, place } from "../../router";
import { plural, shortened, visible } from "../../text";
import { count, duration } from "../../time";
import { useTitle } from "../../title";
import { BulkDialog } from "../jobs/bulkdialog";
import { isAllowed, type BulkAction } from "../jobs/bulk";
import { StateBar } from "./statebar";

export function Batch() {
  const label = place.value.query.get("label") ?? "";
  const asked = useAnswer(at("/batch", { label }));
  useFresh(asked.again, 5_000, asked.problem);
  useTitle(label);
  return (
    <section>
      <p class="crumbs">
        <a href={href("/jobs", { batch: label })}>Jobs</a> / batch <Copy text={label} what="the label" />
      </p>
      <div class="bar head">
        <h1>
          <span class="faint">Batch</span> {visible(shortened(label, 80))}
        </h1>
        <span class="grow" />
        {asked.answer && <Buttons batch={asked.answer} again={asked.again} />}
        <CopyAs ways={() => [{ title: "This batch", path: at("/batch", { label }) }]} />
      </div>
      <Answered asked={asked}>{(batch) => <Whole batch={batch} />}</Answered>
    </section>
  );
}

/** Cancel what waits, and retry what failed: the same dialog as in the list. */
function Buttons({ batch: { label, states }, again }: { batch: OpsBatch; again: () => void }) {
  const doing = useSignal<BulkAction>();
  const buttons: readonly [BulkAction, string, boolean][] = [
    ["retry", "Retry failed and cancelled…", states.failed + states.cancelled > 0],
    ["cancel", "Cancel pending…", states.pending > 0],
  ];
  return (
    <>
      {buttons.map(
        ([action, words, possible]) =>
          possible &&
          isAllowed(action) && (
            <button key={action} type="button" onClick={() => (doing.value = action)}>
              {words}
            </button>
          ),
      )}
      {doing.value !== undefined && (
        <BulkDialog
          action={doing.value}
          target={{ filter: { batch: label } }}
          close={(changed) => {
            doing.value = undefined;
            if (changed) again();
          }}
        />
      )}
    </>
  );
}

function Whole({ batch }: { batch: OpsBatch }) {
  const { label, states, total, firstAt, parent, awaited, groups } = batch;
  return (
    <>
      <StateBar states={states} link={(status) => href("/jobs", { batch: label, status })} />
      <p class="sentence">{progressOf(batch)}</p>
      <Facts
        of={[
          ["Jobs", <a href={href("/jobs", { batch: label })}>{count(total)}</a>],
          ["Ended per minute", <span class="number">{count(Math.round(batch.endedPerMin))}</span>],
          ["First stored", <When at={firstAt} />],
          ...(parent == null ? [] : [["Run by", <JobLink id={parent.id} name={parent.name} />] as const]).map(
            ([label, value]): [string, typeof value] => [label, value],
          ),
        ]}
      />
      {groups.length > 0 && <Groups batch={batch} />}
      {awaited.length > 0 && <Awaited jobs={awaited} />}
    </>
  );
}

/** How far it is and when it may end, in a sentence. */
function progressOf({ states, total, emptyInMs }: OpsBatch): string {
  const active = states.pending + states.processing;
  if (active === 0) return `All of its ${plural(total, "job")} have ended.`;
  const ended = `${count(total - active)} of ${plural(total, "job")} have ended`;
  if (emptyInMs == null) return `${ended}; none in the last five minutes.`;
  const unit = emptyInMs < 60_000 ? 1000 : 60_000; // a rate promises no more
  return `${ended}; the others in about ${duration(Math.max(1, Math.round(emptyInMs / unit)) * unit)}.`;
}

function Groups({ batch: { label, groups, looked, capped } }: { batch: OpsBatch }) {
  return (
    <Card
      title="Failures in this batch"
      actions={
        <span class="faint small">
          {capped ? `of the newest ${count(looked)} failures` : `of ${plural(looked, "failure")}`}
        </span>
      }
    >
      <ul>
        {groups.map((group) => (
          <Group key={group.fingerprint} group={group} label={label} />
        ))}
      </ul>
    </Card>
  );
}

function Group({ group: { fingerprint, sentence, count: size }, label }: { group: OpsBatchGroup; label: string }) {
  return (
    <li class="failing">
      <b class="number">{count(size)}</b>
      <span class="grow">
        <a href={href("/jobs", { batch: label, status: "failed", failed: fingerprint })}>
          {visible(shortened(sentence, 160))}
        </a>
      </span>
    </li>
  );
}

function Awaited({ jobs }: { jobs: readonly OpsJob[] }) {
  return (
    <Card title="Waiting for its end">
      <ul class="children">
        {jobs.map((job) => (
          <li key={job.id}>
            <Status display={job.display} /> <JobLink id={job.id} name={job.name} />
          </li>
        ))}
      </ul>
    </Card>
  );
}
