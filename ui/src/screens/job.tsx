import { useSignal } from "@preact/signals";
import { at, tagOf, to } from "../api";
import type { OpsJobAnswer } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { Copy, CopyAs, type Request } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { jobHref } from "../parts/joblink";
import { Opener } from "../parts/opener";
import { Status } from "../parts/status";
import { Trail } from "../parts/trail";
import { Explained } from "../parts/why";
import { go, href } from "../router";
import { useVerbs } from "../shortcuts";
import { may, now } from "../store";
import { shortened, shortId, visible } from "../text";
import { useTitle } from "../title";
import { perform, WORDS, type JobAction } from "./job/acting";
import { ActionButtons, usePress } from "./job/actions";
import { EnqueueAgain } from "./job/again";
import { Errors } from "./job/errors";
import { Facts } from "./job/facts";
import "./job/job.css";
import { useOlder } from "./job/older";
import { Later } from "./enqueue/later";
import { mayChange, mayEdit } from "./enqueue/may";
import { Payload } from "./job/payload";
import { SendSignal, SignalDialog, takesSignals } from "./job/signal";
import { Steps } from "./job/steps";
import { TimeLineView } from "./job/timelineview";
import { Written } from "./job/written";

export function Job({ id }: { id: string }) {
  const path = at("/jobs/{id}", { id });
  const asked = useAnswer(path);
  const over = asked.answer !== undefined && isOver(asked.answer);
  useFresh(asked.again, over ? 15_000 : 2000, asked.problem);
  return (
    <section>
      <p class="crumbs">
        <a href={href("/jobs")}>Jobs</a> / <code>{visible(id)}</code>
        <Copy text={id} what="the id" />
      </p>
      {asked.answer === undefined && <h1>Job</h1>}
      <Answered asked={asked}>{(job) => <Whole job={job} path={path} again={asked.again} />}</Answered>
    </section>
  );
}

function isOver(job: OpsJobAnswer): boolean {
  return job.status === "completed" || job.status === "cancelled" || job.status === "failed";
}

function Whole({ job, path, again }: { job: OpsJobAnswer; path: string; again: () => void }) {
  const { busy, press, ask, dialog } = usePress({
    job,
    match: () => tagOf(path),
    onChange: (after) => (after === null ? go(href("/jobs")) : again()),
  });
  useVerbs(job.actions.map((each) => ({ label: `${WORDS[each].verb} this job`, run: () => ask(each) })));
  useTitle(`${job.name} ${shortId(job.id)}`);
  const { whole, button } = useOlder(job);
  const retryFrom = async (fromStep: string, note: string | undefined) => {
    await perform(job, "retry", { fromStep, note }, tagOf(path));
    again();
  };
  return (
    <>
      <div class="bar head">
        <h1>{visible(job.name)}</h1>
        <Status display={job.display} recurring={job.recurring != null} />
        <span class="grow" />
        <SendSignal job={job} done={again} />
        <ActionButtons
          actions={job.actions.filter((each) => each !== "delete")}
          busy={busy}
          press={press}
          verbs={verbsOf(job)}
        />
        {mayEdit(job) && (
          <Opener label="Edit…">
            {(close) => (
              <Later load={() => import("./enqueue/edit")}>
                {({ EditJob }) => <EditJob job={job} withPayload={mayChange(job)} close={close} done={again} />}
              </Later>
            )}
          </Opener>
        )}
        {isOver(job) && mayChange(job) && (
          <Opener label="Enqueue with changes…">
            {(close) => (
              <Later load={() => import("./enqueue/enqueue")}>
                {({ WithChanges }) => <WithChanges job={job} close={close} />}
              </Later>
            )}
          </Opener>
        )}
        <EnqueueAgain job={job} />
        <ActionButtons actions={job.actions.filter((each) => each === "delete")} busy={busy} press={press} />
        <CopyAs ways={() => waysOf(job)} />
      </div>
      {dialog}
      <PartOf job={job} />
      {job.status !== "completed" && job.status !== "cancelled" && <Reason job={job} press={press} again={again} />}
      <TimeLineView job={whole} older={button} />
      <Steps job={job} retry={job.actions.includes("retry") ? retryFrom : undefined} />
      <Errors job={whole} />
      <Written job={job} />
      <Payload job={job} />
      <Facts job={job} />
      {job.audit != null && job.audit.length > 0 && <Trail entries={job.audit} caption={<h2>Audit</h2>} />}
    </>
  );
}

/** The job, why it is so, and what its buttons do; those that take a value begin with one. */
function waysOf({ id, actions }: OpsJobAnswer): Request[] {
  const soon = new Date(Math.ceil(now.value / 1000) * 1000 + 600_000).toISOString();
  const bodies: Partial<Record<JobAction, Request["body"]>> = {
    reschedule: { nextRunAt: soon },
    priority: { priority: 1 },
  };
  return [
    { title: "This job", path: at("/jobs/{id}", { id }) },
    { title: "Why it is so", path: at("/jobs/{id}/explanation", { id }) },
    ...actions.map(
      (each): Request =>
        each === "delete"
          ? { title: "Delete it", ...to("DELETE", "/jobs/{id}", { id }) }
          : {
              title: each === "run-now" ? "Run it now" : `${WORDS[each].verb} it`,
              ...to("POST", `/jobs/{id}/${each}`, { id }),
              body: bodies[each] ?? {},
            },
    ),
  ];
}

/** Why it does not run, or what it does instead. */
function Reason({ job, press, again }: { job: OpsJobAnswer; press: (action: JobAction) => void; again: () => void }) {
  const signals = useSignal(false);
  const asked = useAnswer(at("/jobs/{id}/explanation", { id: job.id }));
  useFresh(asked.again, 5000, asked.problem);
  const actions = Object.fromEntries(job.actions.map((action) => [action, () => press(action)]));
  if (may("signal") && takesSignals(job)) actions.signal = () => (signals.value = true);
  if (asked.answer === undefined) return null;
  return (
    <>
      <Explained why={asked.answer} actions={actions} />
      {signals.value && <SignalDialog job={job} done={again} close={() => (signals.value = false)} />}
    </>
  );
}

/** What "Run now" means for a job that waits. */
function verbsOf({ waitsFor }: OpsJobAnswer): Partial<Record<JobAction, string>> {
  if (waitsFor == null) return {};
  return { "run-now": waitsFor.why === "time" ? "Wake now" : "End the wait" };
}

/** The job whose step runs this one, and the batch that it belongs to. */
function PartOf({ job: { parent, batch } }: { job: OpsJobAnswer }) {
  if (parent == null && batch == null) return null;
  return (
    <p>
      {parent != null && (
        <>
          Run by <a href={jobHref(parent.jobId)}>job {shortId(parent.jobId)}</a> in its step “
          {visible(shortened(parent.step, 60))}”.{" "}
        </>
      )}
      {batch != null && (
        <>
          Of the batch <a href={href("/batch", { label: batch })}>{visible(shortened(batch, 80))}</a>.
        </>
      )}
    </p>
  );
}
