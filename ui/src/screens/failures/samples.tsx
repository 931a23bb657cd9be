// Some jobs of a group side by side: what is the same, and what differs.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { at, get } from "../../api";
import type { OpsJob, OpsJobAnswer } from "../../api.gen";
import { Table, type Column } from "../../parts/table";
import { When } from "../../parts/when";
import { shortened, shortId, shown, visible } from "../../text";
import { jobHref } from "../../parts/joblink";

type Line = [label: string, cell: (job: OpsJobAnswer | OpsJob) => preact.ComponentChildren];

const LINES: readonly Line[] = [
  ["Name", (job) => visible(shortened(job.name, 80))],
  ["Failed", (job) => <When at={job.finishedAt ?? job.updatedAt} />],
  ["Attempts", (job) => `${job.failCount} of ${job.maxAttempts}`],
  ["Instance", (job) => instanceOf(job)],
  ["Reason", (job) => <pre tabIndex={0}>{shown(job.failureReason ?? "–")}</pre>],
];

export function Samples({
  samples,
  differingKeys,
}: {
  samples: readonly OpsJob[];
  differingKeys: readonly string[] | undefined;
}) {
  const jobs = useWhole(samples);
  const differing: Line[] = (differingKeys ?? []).map((key) => [
    `payload.${visible(shortened(key, 40))}`,
    (job) => (
      <pre class="differs" tabIndex={0}>
        {shown(valueAt(job, key))}
      </pre>
    ),
  ]);
  const hidden = samples.some((job) => job.payloadHidden === true);
  const rest: Line[] = hidden ? [] : [["Payload", (job) => <Whole job={job} />]];
  return (
    <Table
      class="samples wide"
      rows={[...LINES, ...differing, ...rest]}
      keyOf={([label]) => label}
      caption={
        <>
          {samples.length === 1 ? "The newest of them" : `${samples.length} of them side by side`}
          {differing.length > 0 && (
            <span class="faint">
              {" "}
              (payloads differ in {differingKeys?.map((key) => visible(shortened(key, 40))).join(", ")})
            </span>
          )}
        </>
      }
      columns={[
        { title: "", head: <span class="hidden-text">What</span>, cell: ([label]) => label },
        ...jobs.map(
          (job): Column<Line> => ({
            title: shortId(job.id),
            head: (
              <a class="mono" href={jobHref(job.id)}>
                {shortId(job.id)}
              </a>
            ),
            cell: ([, cell]) => cell(job),
          }),
        ),
      ]}
    />
  );
}

/** The samples with payloads and attempts; as rows of the group until these are there. */
function useWhole(samples: readonly OpsJob[]): readonly (OpsJobAnswer | OpsJob)[] {
  const whole = useSignal<ReadonlyMap<string, OpsJobAnswer>>(new Map());
  const ids = samples.map((job) => job.id).join();
  useEffect(() => {
    const stop = new AbortController();
    for (const { id } of samples) {
      get(at("/jobs/{id}", { id }), stop.signal).then(
        (job) => (whole.value = new Map(whole.value).set(id, job)),
        () => undefined, // it was deleted meanwhile, or the page is gone: the row says what is known
      );
    }
    return () => stop.abort();
  }, [ids]);
  return samples.map((job) => whole.value.get(job.id) ?? job);
}

function instanceOf(job: OpsJobAnswer | OpsJob): string {
  const last = "attempts" in job ? job.attempts?.at(-1)?.instance : undefined;
  return last == null ? "–" : shortId(last);
}

function valueAt({ payload }: OpsJob, key: string): string {
  if (typeof payload !== "object" || payload === null) return "…";
  const value = (payload as Record<string, unknown>)[key];
  return value === undefined ? "not there" : JSON.stringify(value);
}

function Whole({ job }: { job: OpsJob }) {
  const text = job.payload === undefined ? (job.payloadPreview ?? "–") : JSON.stringify(job.payload, null, 2);
  return (
    <details>
      <summary>Show</summary>
      <pre tabIndex={0}>{shown(text)}</pre>
    </details>
  );
}
