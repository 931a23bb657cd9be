import { tagOf } from "../api";
import type { OpsExplanationAnswer, OpsJobAnswer } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { Copy, CopyAs, type Request } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Status } from "../parts/status";
import { Trail } from "../parts/trail";
import { Explained } from "../parts/why";
import { go, href, under } from "../router";
import { now } from "../store";
import { visible } from "../text";
import { WORDS, type JobAction } from "./job/acting";
import { ActionButtons, usePress } from "./job/actions";
import { EnqueueAgain } from "./job/again";
import { Errors } from "./job/errors";
import { Facts } from "./job/facts";
import "./job/job.css";
import { useOlder } from "./job/older";
import { Payload } from "./job/payload";
import { TimeLineView } from "./job/timelineview";
import { Written } from "./job/written";

export function Job({ id }: { id: string }) {
  const path = under("/jobs", id);
  const asked = useAnswer<OpsJobAnswer>(path);
  const over = asked.answer !== undefined && isOver(asked.answer);
  useFresh(asked.again, over ? 15_000 : 2000, asked.problem);
  return (
    <section>
      <p class="crumbs"><a href={href("/jobs")}>Jobs</a> / <code>{visible(id)}</code><Copy text={id} what="the id" /></p>
      {asked.answer === undefined && <h1>Job</h1>}
      <Answered asked={asked}>{(job) => <Whole job={job} path={path} again={asked.again} />}</Answered>
    </section>
  );
}

function isOver(job: OpsJobAnswer): boolean {
  return job.status === "completed" || job.status === "cancelled" || job.status === "failed";
}

function Whole({ job, path, again }: { job: OpsJobAnswer; path: string; again: () => void }) {
  const { busy, press, dialog } = usePress({ job, match: () => tagOf(path), onChange: (after) => (after === null ? go(href("/jobs")) : again()) });
  const { whole, button } = useOlder(job);
  return (
    <>
      <div class="bar head">
        <h1>{visible(job.name)}</h1>
        <Status display={job.display} recurring={job.recurring != null} />
        <span class="grow" />
        <ActionButtons actions={job.actions} busy={busy} press={press} />
        <EnqueueAgain job={job} />
        <CopyAs ways={() => waysOf(job, path)} />
      </div>
      {dialog}
      {job.status !== "completed" && job.status !== "cancelled" && <Reason job={job} press={press} />}
      <TimeLineView job={whole} older={button} />
      <Errors job={whole} />
      <Written job={job} />
      <Payload job={job} />
      <Facts job={job} />
      {job.audit != null && job.audit.length > 0 && <section><h2>Audit</h2><Trail entries={job.audit} caption="What people did to this job" /></section>}
    </>
  );
}

/** The job, why it is so, and what its buttons do; those that take a value begin with one. */
function waysOf({ actions }: OpsJobAnswer, path: string): Request[] {
  const soon = new Date(Math.ceil(now.value / 1000) * 1000 + 600_000).toISOString();
  const bodies: Partial<Record<JobAction, Request["body"]>> = { reschedule: { nextRunAt: soon }, priority: { priority: 1 } };
  return [
    { title: "This job", path }, { title: "Why it is so", path: `${path}/explanation` },
    ...actions.map((each): Request => each === "delete" ? { title: "Delete it", method: "DELETE", path }
      : { title: each === "run-now" ? "Run it now" : `${WORDS[each].verb} it`, method: "POST", path: `${path}/${each}`, body: bodies[each] ?? {} }),
  ];
}

/** Why it does not run, or what it does instead. */
function Reason({ job, press }: { job: OpsJobAnswer; press: (action: JobAction) => void }) {
  const asked = useAnswer<OpsExplanationAnswer>(`${under("/jobs", job.id)}/explanation`);
  useFresh(asked.again, 5000, asked.problem);
  const actions = Object.fromEntries(job.actions.map((action) => [action, () => press(action)]));
  return asked.answer === undefined ? null : <Explained why={asked.answer} actions={actions} />;
}
