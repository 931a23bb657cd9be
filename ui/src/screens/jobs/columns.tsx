// The columns of the list, and which of them this reader wants.
import type { ComponentChildren } from "preact";
import type { OpsJob } from "../../api.gen";
import { Copy } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { Took, When } from "../../parts/when";
import { href } from "../../router";
import { may, now, remembered } from "../../store";
import { shortId, shortened, visible } from "../../text";
import { jobHref } from "../job/acting";
import { Opener } from "../../parts/opener";

export interface Column {
  key: string;
  title: string;
  cell: (job: OpsJob) => ComponentChildren;
  number?: boolean;
}

const COLUMNS: readonly Column[] = [
  { key: "name", title: "Name", cell: (job) => <a class="line" href={jobHref(job.id)} title={visible(job.name)} data-open>{visible(job.name)}</a> },
  { key: "id", title: "Id", cell: (job) => <span class="nowrap"><code title={visible(job.id)}>{shortId(job.id)}</code><Copy text={job.id} what={`id ${shortId(job.id)}`} /></span> },
  { key: "created", title: "Created", cell: (job) => <When brief at={job.createdAt} /> },
  { key: "when", title: "When", cell: (job) => <Moment job={job} /> },
  { key: "attempts", title: "Attempts", number: true, cell: attemptsOf },
  { key: "duration", title: "Duration", number: true, cell: (job) => <Took ms={ranFor(job)} /> },
  { key: "instance", title: "Instance", cell: (job) => job.claimedBy == null ? <span class="faint">–</span> : <a href={href("/instance", { id: job.claimedBy })}>{visible(shortened(job.claimedBy, 9))}</a> },
  { key: "reason", title: "Reason", cell: (job) => <span class="line" title={visible(reasonOf(job))}>{visible(shortened(reasonOf(job), 90))}</span> },
  { key: "payload", title: "Payload", cell: (job) => <code class="line">{visible(previewOf(job))}</code> },
];

function Moment({ job }: { job: OpsJob }) {
  if (job.status === "pending") return job.nextRunAt == null ? <span class="faint">no time yet</span> : <span>due <When brief at={job.nextRunAt} /></span>;
  if (job.status === "processing") return <span>started <When brief at={job.startedAt} /></span>;
  return <span>ended <When brief at={job.finishedAt ?? job.updatedAt} /></span>;
}

/** "3/10": runs that failed or are under way, of those allowed. */
function attemptsOf(job: OpsJob): string {
  const more = job.status === "processing" || job.status === "completed" ? 1 : 0;
  return `${Math.min(job.failCount + more, Math.max(job.maxAttempts, job.failCount))}/${job.maxAttempts}`;
}

function ranFor(job: OpsJob): number | undefined {
  if (job.status === "processing" && job.startedAt != null) return Math.max(0, Math.floor((now.value - Date.parse(job.startedAt)) / 1000) * 1000);
  return job.durationMs ?? undefined;
}

function reasonOf(job: OpsJob): string {
  const reason = job.status === "cancelled" ? (job.cancelReason ?? job.failureReason) : job.failureReason;
  return reason?.split("\n", 1)[0] ?? "";
}

function previewOf(job: OpsJob): string {
  if (job.payloadHidden === true) return "hidden";
  return job.truncated == null ? (job.payloadPreview ?? "") : "too large to show";
}

const hidden = remembered<string[]>("hidden columns", ["payload"]);

/** The columns that this reader wants to see. */
export function chosenColumns(): readonly Column[] {
  return offered().filter((column) => !hidden.value.includes(column.key));
}

function offered(): readonly Column[] {
  return may("payload") ? COLUMNS : COLUMNS.filter((column) => column.key !== "payload" && column.key !== "reason");
}

export function ChooseColumns() {
  const toggle = (key: string) => {
    hidden.value = hidden.value.includes(key) ? hidden.value.filter((each) => each !== key) : [...hidden.value, key];
  };
  return (
    <Opener label="Choose columns…">
      {(close) => (
        <Dialog title="Columns" closes close={close}>
          {offered().filter((column) => column.key !== "name").map(({ key, title }) => (
            <label key={key} class="check"><input type="checkbox" checked={!hidden.value.includes(key)} onChange={() => toggle(key)} /> {title}</label>
          ))}
        </Dialog>
      )}
    </Opener>
  );
}
