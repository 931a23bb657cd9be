import { tagOf } from "../api";
import type { OpsExplanationAnswer, OpsJobAnswer } from "../api.gen";
import { ON_ONE, actionWays, jobWays } from "../copyas";
import { Answered, useAnswer } from "../parts/asking";
import { Copy, CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Status } from "../parts/status";
import { Trail } from "../parts/trail";
import { Explained } from "../parts/why";
import { go, href, root } from "../router";
import { visible } from "../text";
import type { JobAction } from "./job/acting";
import { ActionButtons, usePress } from "./job/actions";
import { EnqueueAgain } from "./job/again";
import { Errors } from "./job/errors";
import { Facts } from "./job/facts";
import "./job/job.css";
import { Payload } from "./job/payload";
import { TimeLineView } from "./job/timelineview";
import { Written } from "./job/written";

export function Job({ id }: { id: string }) {
  const path = `/jobs/${encodeURIComponent(id)}`;
  const asked = useAnswer<OpsJobAnswer>(path);
  const over = asked.answer !== undefined && isOver(asked.answer);
  useFresh(asked.again, over ? 15_000 : 2000);
  return (
    <section>
      <p class="crumbs"><a href={href("/jobs")}>Jobs</a> / <code>{visible(id)}</code><Copy text={id} what="the id" /></p>
      <Answered asked={asked}>{(job) => <Whole job={job} path={path} again={asked.again} />}</Answered>
    </section>
  );
}

function isOver(job: OpsJobAnswer): boolean {
  return job.status === "completed" || job.status === "cancelled" || job.status === "failed";
}

function Whole({ job, path, again }: { job: OpsJobAnswer; path: string; again: () => void }) {
  const { busy, press, dialog } = usePress({ job, match: () => tagOf(path), onChange: (after) => (after === null ? go(href("/jobs")) : again()) });
  const ways = () => [...jobWays(job.id, root()), ...job.actions.filter((each) => each in ON_ONE).map((each) => actionWays(each, job.id, root()))];
  return (
    <>
      <div class="bar head">
        <h1>{visible(job.name)}</h1>
        <Status display={job.display} recurring={job.recurring != null} />
        <span class="grow" />
        <ActionButtons actions={job.actions} busy={busy} press={press} />
        <EnqueueAgain job={job} />
        <CopyAs ways={ways} />
      </div>
      {dialog}
      {job.status !== "completed" && job.status !== "cancelled" && <Reason job={job} press={press} />}
      <TimeLineView job={job} />
      <Errors job={job} />
      <Written job={job} />
      <Payload job={job} />
      <Facts job={job} />
      {job.audit != null && job.audit.length > 0 && <section><h2>Audit</h2><Trail entries={job.audit} caption="What people did to this job, the newest first" /></section>}
    </>
  );
}

/** Why it does not run, or what it does instead. */
function Reason({ job, press }: { job: OpsJobAnswer; press: (action: JobAction) => void }) {
  const asked = useAnswer<OpsExplanationAnswer>(`/jobs/${encodeURIComponent(job.id)}/explanation`);
  useFresh(asked.again, 5000);
  const actions = Object.fromEntries(job.actions.map((action) => [action, () => press(action)]));
  return asked.answer === undefined ? null : <Explained why={asked.answer} actions={actions} />;
}
