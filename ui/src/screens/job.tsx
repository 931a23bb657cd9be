import { tagOf } from "../api";
import type { OpsJobAnswer } from "../api.gen";
import { actionWays, jobWays } from "../copyas";
import { Answered, useAnswer } from "../parts/asking";
import { Copy, CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Status } from "../parts/status";
import { go, href, root } from "../router";
import { shortId, visible } from "../text";
import { Actions } from "./job/actions";
import { Errors } from "./job/errors";
import { Facts } from "./job/facts";
import "./job/job.css";
import { Payload } from "./job/payload";
import { TimeLineView } from "./job/timelineview";
import { Trail } from "./job/trail";
import { Why } from "./job/why";
import { Written } from "./job/written";

export function Job({ id }: { id: string }) {
  const path = `/jobs/${encodeURIComponent(id)}`;
  const asked = useAnswer<OpsJobAnswer>(path);
  const over = asked.answer !== undefined && isOver(asked.answer);
  useFresh(asked.again, over ? 15_000 : 2000);
  return (
    <section>
      <p class="crumbs"><a href={href("/jobs")}>Jobs</a> / {shortId(id)}</p>
      <Answered asked={asked}>{(job) => <Whole job={job} path={path} again={asked.again} />}</Answered>
    </section>
  );
}

function isOver(job: OpsJobAnswer): boolean {
  return job.status === "completed" || job.status === "cancelled" || job.status === "failed";
}

function Whole({ job, path, again }: { job: OpsJobAnswer; path: string; again: () => void }) {
  return (
    <>
      <div class="bar head">
        <h1>{visible(job.name)}</h1>
        <Status display={job.display} recurring={job.recurring != null} />
        <span class="nowrap"><code>{visible(job.id)}</code><Copy text={job.id} what="the id" /></span>
        <span class="grow" />
        <Actions job={job} match={() => tagOf(path)} onChange={(after) => (after === null ? go(href("/jobs")) : again())} />
        <CopyAs ways={() => [...jobWays(job.id, root()), ...job.actions.filter((each) => each !== "reschedule" && each !== "priority").map((each) => actionWays(each, job.id, root()))]} />
      </div>
      {job.status !== "completed" && job.status !== "cancelled" && <Why job={job} />}
      <TimeLineView job={job} />
      <Errors job={job} />
      <Written job={job} />
      <Payload job={job} />
      <Facts job={job} />
      {job.audit != null && <Trail entries={job.audit} />}
    </>
  );
}
