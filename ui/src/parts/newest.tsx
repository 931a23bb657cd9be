// The newest jobs of a name, in a few lines; the list of jobs has the rest.
import type { OpsJob, OpsJobList } from "../api.gen";
import { href } from "../router";
import { shortened, shortId, visible } from "../text";
import { Answered, useAnswer } from "./asking";
import { useFresh } from "./fresh";
import { Status } from "./status";
import { Table, type Column } from "./table";
import { Took, When } from "./when";

const COLUMNS: readonly Column<OpsJob>[] = [
  { title: "Job", cell: (job) => <a class="mono" href={href(`/jobs/${encodeURIComponent(job.id)}`)} title={visible(job.id)}>{shortId(job.id)}</a> },
  { title: "State", cell: (job) => <Status display={job.display} recurring={job.recurring != null} /> },
  { title: "Created", cell: (job) => <When at={job.createdAt} /> },
  { title: "Tries", numeric: true, cell: (job) => `${job.attempt} / ${job.maxAttempts}` },
  { title: "Took", numeric: true, cell: (job) => <Took ms={job.durationMs} /> },
  { title: "Reason", cell: (job) => (job.failureReason == null ? "" : visible(shortened(job.failureReason, 100))) },
];

export function NewestJobs({ name }: { name: string }) {
  const asked = useAnswer<OpsJobList>("/jobs", new URLSearchParams({ name, limit: "10" }));
  useFresh(asked.again, 5_000);
  return (
    <div class="newest">
      <Answered asked={asked}>
        {({ jobs }) => (
          <Table
            caption={<span class="bar"><span>Newest jobs</span><span class="grow" /><a href={href("/jobs", { name })}>All jobs of this queue</a></span>}
            columns={COLUMNS} rows={jobs} keyOf={(job) => job.id} empty="No job of this name is stored."
          />
        )}
      </Answered>
    </div>
  );
}
