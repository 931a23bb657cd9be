// The columns of the list, and which of them this reader wants.
import type { ComponentChildren } from "preact";
import type { OpsJob } from "../../api.gen";
import { Copy } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { Took, When } from "../../parts/when";
import { href, place } from "../../router";
import { fitting, layout, type Priority } from "../../layout";
import { may, now, remembered } from "../../store";
import { shortId, shortened, visible } from "../../text";
import { Labelled } from "../../parts/icon";
import { jobHref } from "../../parts/joblink";
import { Opener } from "../../parts/opener";
import { None } from "../../parts/none";

export interface Column {
  key: string;
  title: string;
  cell: (job: OpsJob) => ComponentChildren;
  number?: boolean;
  priority?: Priority;
}

const COLUMNS: readonly Column[] = [
  {
    key: "name",
    title: "Name",
    cell: (job) => (
      <>
        <a class="line" href={jobHref(job.id)} title={visible(job.name)} data-open>
          {visible(job.name)}
        </a>
        {layout.value === "medium" && isChosen("reason") && reasonOf(job) !== "" && (
          <span class="second" title={visible(reasonOf(job))}>
            {visible(shortened(reasonOf(job), 120))}
          </span>
        )}
      </>
    ),
  },
  {
    key: "id",
    title: "Id",
    priority: 3,
    cell: (job) => (
      <span class="nowrap">
        <code title={visible(job.id)}>{shortId(job.id)}</code>
        <Copy text={job.id} what={`id ${shortId(job.id)}`} />
      </span>
    ),
  },
  { key: "created", title: "Created", priority: 3, cell: (job) => <When brief at={job.createdAt} /> },
  { key: "when", title: "When", cell: (job) => <Moment job={job} /> },
  { key: "attempts", title: "Attempts", number: true, priority: 2, cell: attemptsOf },
  { key: "duration", title: "Duration", number: true, priority: 2, cell: (job) => <Took ms={ranFor(job)} /> },
  { key: "wait", title: "Wait", number: true, priority: 2, cell: (job) => <Took ms={job.waitMs} /> },
  {
    key: "instance",
    title: "Instance",
    priority: 3,
    cell: (job) =>
      job.claimedBy == null ? (
        <None />
      ) : (
        <a href={href("/instance", { id: job.claimedBy })}>{visible(shortened(job.claimedBy, 9))}</a>
      ),
  },
  {
    key: "reason",
    title: "Reason",
    cell: (job) => (
      <span class="line" title={visible(reasonOf(job))}>
        {visible(shortened(reasonOf(job), 90))}
      </span>
    ),
  },
  { key: "payload", title: "Payload", priority: 3, cell: (job) => <code class="line">{visible(previewOf(job))}</code> },
];

function Moment({ job }: { job: OpsJob }) {
  if (job.status === "pending")
    return job.nextRunAt == null ? (
      <span class="faint">no time yet</span>
    ) : (
      <span>
        {job.display !== "waiting" ? "due" : job.waitsFor?.why === "time" ? "wakes" : "ends"}{" "}
        <When brief at={job.nextRunAt} />
      </span>
    );
  if (job.status === "processing")
    return (
      <span>
        started <When brief at={job.startedAt} />
      </span>
    );
  const slow = layout.value === "small" ? place.value.query.get("sort") : null; // there is no column of it
  return (
    <span>
      {slow === "ran" && <Took ms={job.durationMs} />}
      {slow === "waited" && <Took ms={job.waitMs} />}
      {slow === "ran" ? ", " : slow === "waited" ? " late, " : ""}ended{" "}
      <When brief at={job.finishedAt ?? job.updatedAt} />
    </span>
  );
}

/** "3/10": runs that failed or are under way, of those allowed. */
function attemptsOf(job: OpsJob): string {
  const more = job.status === "processing" || job.status === "completed" ? 1 : 0;
  return `${Math.min(job.failCount + more, Math.max(job.maxAttempts, job.failCount))}/${job.maxAttempts}`;
}

function ranFor(job: OpsJob): number | undefined {
  if (job.status === "processing" && job.startedAt != null)
    return Math.max(0, Math.floor((now.value - Date.parse(job.startedAt)) / 1000) * 1000);
  return job.durationMs ?? undefined;
}

function reasonOf(job: OpsJob): string {
  if (job.waitsFor != null && job.display === "waiting") return waitOf(job.waitsFor);
  const reason = job.status === "cancelled" ? (job.cancelReason ?? job.failureReason) : job.failureReason;
  return reason?.split("\n", 1)[0] ?? "";
}

function waitOf({ why, signal, batch }: NonNullable<OpsJob["waitsFor"]>): string {
  if (why === "time") return "sleeps";
  if (why === "turn") return "waits for its turn";
  return `waits for the ${why} ${signal ?? batch ?? ""}`;
}

function previewOf(job: OpsJob): string {
  if (job.payloadHidden === true) return "hidden";
  return job.truncated == null ? (job.payloadPreview ?? "") : "too large to show";
}

const hidden = remembered<string[]>("hidden columns", ["payload", "wait"]);

/** The columns that this reader wants to see and that have room. Between 800 and 1280 px the reason stands below the name. */
export function chosenColumns(): readonly Column[] {
  const chosen = fitting(offered(), layout.value).filter((column) => isChosen(column.key));
  return layout.value === "medium" ? chosen.filter((column) => column.key !== "reason") : chosen;
}

function isChosen(key: string): boolean {
  // A list in the order of the waits shows them.
  if (key === "wait" && place.value.query.get("sort") === "waited") return true;
  return !hidden.value.includes(key) && offered().some((column) => column.key === key);
}

function offered(): readonly Column[] {
  return may("payload") ? COLUMNS : COLUMNS.filter((column) => column.key !== "payload" && column.key !== "reason");
}

export function ChooseColumns() {
  const toggle = (key: string) => {
    hidden.value = hidden.value.includes(key) ? hidden.value.filter((each) => each !== key) : [...hidden.value, key];
  };
  return (
    <Opener label={<Labelled name="columns" words="Choose columns…" />}>
      {(close) => (
        <Dialog title="Columns" closes close={close}>
          {offered()
            .filter((column) => column.key !== "name")
            .map(({ key, title }) => (
              <label key={key} class="check">
                <input type="checkbox" checked={!hidden.value.includes(key)} onChange={() => toggle(key)} /> {title}
              </label>
            ))}
        </Dialog>
      )}
    </Opener>
  );
}
