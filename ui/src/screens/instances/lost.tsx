// What an instance ran when it died, and what became of each of these jobs.
import { at } from "../../api";
import type { OpsLostRun } from "../../api.gen";
import { Answered, useAnswer } from "../../parts/asking";
import { useFresh } from "../../parts/fresh";
import { JobLink } from "../../parts/joblink";
import { Status } from "../../parts/status";
import { Table, type Column } from "../../parts/table";
import { When } from "../../parts/when";
import { href } from "../../router";
import { offers } from "../../store";
import { shortId, visible } from "../../text";
import { instanceHref } from "./parts";

const COLUMNS: readonly Column<OpsLostRun>[] = [
  { title: "Job", cell: ({ job }) => <JobLink id={job.id} name={job.name} /> },
  { title: "Attempt", numeric: true, priority: 3, cell: ({ number }) => number },
  { title: "Last alive", priority: 2, cell: ({ since }) => <When at={since} as="absolute" /> },
  { title: "Then", cell: (run) => <Then run={run} /> },
  { title: "Now", cell: ({ job }) => <Status display={job.display} /> },
];

/** Who took it over, and how that ended. */
function Then({ run: { next, lostAt, job } }: { run: OpsLostRun }) {
  if (next == null)
    return (
      <>
        {job.status === "pending" ? "waits to run again, lost" : "given up"} <When at={lostAt} />
      </>
    );
  const how = next.outcome === "running" ? "runs" : next.outcome.replace("_", " ");
  return (
    <>
      {next.instance != null && (
        <>
          taken over by <a href={instanceHref(next.instance)}>{visible(shortId(next.instance))}</a>:{" "}
        </>
      )}
      attempt {next.number} {how} <When at={next.finishedAt ?? next.startedAt} />
    </>
  );
}

export function Lost({ id }: { id: string }) {
  const asked = useAnswer(at("/instance/lost", { id }));
  useFresh(asked.again, 15_000, asked.problem);
  return (
    <section aria-labelledby="lost">
      {!offers("attempts") && (
        <p class="faint">No attempts are kept here, so nobody knows: see Options.attempt_history.</p>
      )}
      <Answered asked={asked}>
        {({ runs, capped }) => (
          <Table
            caption={
              <h2 id="lost">
                Ran when it fell silent{" "}
                <span class="faint">{capped ? `the ${runs.length} that changed last` : runs.length}</span>
              </h2>
            }
            columns={COLUMNS}
            rows={runs}
            keyOf={({ job }) => job.id}
            empty="Nothing that others have taken over yet."
          />
        )}
      </Answered>
      <p>
        <a href={href("/jobs", { lostBy: id })}>As a list of jobs</a>
      </p>
    </section>
  );
}
