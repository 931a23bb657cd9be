import { useMemo } from "preact/hooks";
import type { OpsJob, OpsRecent } from "../api.gen";
import { href } from "../router";
import { now } from "../store";
import { shortId } from "../text";
import { duration } from "../time";
import { Icon } from "./icon";
import { JobLink } from "./joblink";
import { Status } from "./status";
import { Table, type Column } from "./table";
import { Took } from "./when";

/** What runs, the longest first, against how long its kind usually takes. */
export function RunningNow({ jobs, recent }: { jobs: readonly OpsJob[]; recent: Record<string, OpsRecent> }) {
  const columns = useMemo(() => columnsOf(recent), [recent]);
  const caption = (
    <span class="bar">
      <span>Running now, the longest first</span>
      <span class="grow" />
      <a href={href("/jobs", { status: "processing" })}>All running jobs</a>
    </span>
  );
  return (
    <Table
      caption={caption}
      columns={columns}
      rows={jobs}
      keyOf={(job) => job.id}
      empty="Nothing runs at the moment."
    />
  );
}

function columnsOf(recent: Record<string, OpsRecent>): Column<OpsJob>[] {
  const usual = (job: OpsJob) => recent[job.name]?.runP95Ms;
  return [
    { title: "Job", cell: Name },
    { title: "For", numeric: true, cell: (job) => <Age since={job.startedAt} usual={usual(job)} /> },
    {
      title: "Usual (p95)",
      priority: 2,
      numeric: true,
      cell: (job) =>
        usual(job) == null ? (
          "–"
        ) : (
          <>
            ≈ <Took ms={usual(job)} />
          </>
        ),
    },
    {
      title: "On",
      cell: (job) =>
        job.claimedBy == null ? (
          "–"
        ) : (
          <a class="mono" href={href("/instance", { id: job.claimedBy })}>
            {shortId(job.claimedBy)}
          </a>
        ),
    },
  ];
}

function Name(job: OpsJob) {
  return (
    <>
      <JobLink {...job} />
      {job.display !== "running" && (
        <>
          {" "}
          <Status display={job.display} />
        </>
      )}
    </>
  );
}

/** How long it has run, by the server's clock; far longer than usual is pointed out. */
function Age({ since, usual }: { since: string | null | undefined; usual: number | null | undefined }) {
  if (since == null) return <>–</>;
  const age = Math.max(0, now.value - Date.parse(since));
  const isLong = usual != null && age > 2 * usual && age > 2_000;
  return (
    <span class={isLong ? "bad-text nowrap" : "nowrap"}>
      {isLong && (
        <>
          <Icon name="silent" label="longer than usual:" />{" "}
        </>
      )}
      {duration(age < 1000 ? age : Math.floor(age / 1000) * 1000)}
    </span>
  );
}
