import type { OpsJob, OpsRecent } from "../api.gen";
import { href } from "../router";
import { now } from "../store";
import { plural, shortId, shortened, visible } from "../text";
import { duration } from "../time";
import { Status } from "./status";
import { Took } from "./when";

/** What runs, the longest first, against how long its kind usually takes. */
export function RunningNow({ jobs, recent }: { jobs: readonly OpsJob[]; recent: Record<string, OpsRecent> }) {
  return (
    <section class="card">
      <div class="bar"><h2>Running now</h2><span class="grow" /><a href={href("/jobs", { status: "processing" })}>All that runs</a></div>
      {jobs.length === 0 ? <p class="faint">Nothing runs at the moment.</p> : (
        <div class="table">
          <table class="cards">
            <caption class="hidden-text">{plural(jobs.length, "job")} that run, the longest first</caption>
            <thead><tr><th scope="col">Job</th><th scope="col" class="number">For</th><th scope="col" class="number">Usual (p95)</th><th scope="col">On</th></tr></thead>
            <tbody>{jobs.map((job) => <Line key={job.id} job={job} usual={recent[job.name]?.runP95Ms ?? undefined} />)}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Line({ job, usual }: { job: OpsJob; usual: number | undefined }) {
  return (
    <tr>
      <th scope="row" data-label="Job">
        <span>
          <a href={href(`/jobs/${encodeURIComponent(job.id)}`)}>{visible(shortened(job.name, 60))} <span class="mono">{shortId(job.id)}</span></a>
          {job.display !== "running" && <> <Status display={job.display} /></>}
        </span>
      </th>
      <td class="number nowrap" data-label="For"><Age since={job.startedAt} usual={usual} /></td>
      <td class="number nowrap" data-label="Usual (p95)">{usual === undefined ? <span class="faint">–</span> : <span>≈ <Took ms={usual} /></span>}</td>
      <td data-label="On">{job.claimedBy == null ? "–" : <a class="mono" href={href("/instance", { id: job.claimedBy })}>{shortId(job.claimedBy)}</a>}</td>
    </tr>
  );
}

/** How long it has run, by the server's clock; far longer than usual is pointed out. */
function Age({ since, usual }: { since: string | null | undefined; usual: number | undefined }) {
  if (since == null) return <span class="faint">–</span>;
  const age = Math.max(0, now.value - Date.parse(since));
  const isLong = usual !== undefined && age > 2 * usual && age > 2_000;
  return <span class={isLong ? "bad-text" : undefined}>{isLong && "! "}{duration(age < 1000 ? age : Math.floor(age / 1000) * 1000)}</span>;
}
