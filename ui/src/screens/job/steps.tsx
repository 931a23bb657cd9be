// The steps and waits of a handler as a list: what is stored of each, and how to begin again at one.
import { at } from "../../api";
import type { OpsJobAnswer, OpsStep } from "../../api.gen";
import { StateBar } from "../batches/statebar";
import { useAnswer } from "../../parts/asking";
import { Card } from "../../parts/card";
import { Confirm } from "../../parts/confirm";
import { useFresh } from "../../parts/fresh";
import { JobLink } from "../../parts/joblink";
import { None } from "../../parts/none";
import { Opener } from "../../parts/opener";
import { Status } from "../../parts/status";
import { Table, type Column } from "../../parts/table";
import { Took, When } from "../../parts/when";
import { href } from "../../router";
import { now } from "../../store";
import { plural, shortened, visible } from "../../text";
import { bytes } from "./tree";

/** What each kind of step is. */
export const STEP_WORDS: Record<string, string> = {
  step: "step",
  transaction: "transaction",
  sleep: "sleep",
  signal: "wait for a signal",
  jobs: "run jobs",
};

interface Props {
  job: OpsJobAnswer;
  /** Begin again at a step; undefined where this job cannot be retried. */
  retry: ((fromStep: string, note: string | undefined) => Promise<void>) | undefined;
}

export function Steps({ job, retry }: Props) {
  const { steps, signals } = job;
  if (!steps?.length && !signals?.length) return null;
  const columns: readonly Column<OpsStep>[] =
    retry === undefined
      ? COLUMNS
      : [...COLUMNS, { title: "Again", actions: true, cell: (step) => <Again step={step.name} retry={retry} /> }];
  return (
    <section aria-labelledby="steps">
      {!steps?.length && (
        <h2 id="steps" class="hidden-text">
          Steps
        </h2>
      )}
      {steps != null && steps.length > 0 && (
        <Table
          caption={
            <h2 id="steps">
              Steps <span class="faint">{steps.length}</span>
            </h2>
          }
          columns={columns}
          rows={steps}
          keyOf={({ name }) => name}
          scrolls={steps.length > 20 ? "Steps" : undefined}
        />
      )}
      {signals != null && signals.length > 0 && (
        <Table
          caption={`${plural(signals.length, "signal")} that nobody has received`}
          columns={SIGNALS}
          rows={signals.map((each, at) => ({ ...each, kind: "signal", key: String(at) }))}
          keyOf={({ key }) => key}
        />
      )}
      {steps?.map((step) => step.batch != null && <Children key={step.name} step={step} batch={step.batch} />)}
    </section>
  );
}

const NAME: Column<OpsStep> = { title: "Name", cell: ({ name }) => visible(shortened(name, 60)) };
const VALUE: Column<OpsStep> = { title: "Value", cell: (step) => <Value step={step} /> };

const COLUMNS: readonly Column<OpsStep>[] = [
  NAME,
  { title: "Kind", priority: 2, cell: ({ kind }) => STEP_WORDS[kind] ?? visible(kind) },
  { title: "When", cell: ({ at }) => <When at={at} as="absolute" /> },
  { title: "Took", numeric: true, cell: (step) => <Took ms={tookOf(step)} /> },
  VALUE,
];

const SIGNALS: readonly Column<OpsStep & { key: string }>[] = [
  NAME,
  { title: "Came", cell: ({ at }) => <When at={at} as="absolute" /> },
  VALUE,
];

/** How long a step took, or a wait that is over lasted. */
function tookOf({ at, over, until, kind, durationMs }: OpsStep): number | undefined {
  if (kind === "step" || kind === "transaction") return durationMs ?? undefined;
  const end = over ?? (kind === "sleep" ? until : undefined);
  if (at == null || end == null || Date.parse(end) > now.value) return undefined;
  return Date.parse(end) - Date.parse(at);
}

const SHORT = 60;

/** The value, if this reader may see it; else how large it is. */
function Value({ step: { kind, value, size, over, until } }: { step: OpsStep }) {
  if (size == null) {
    if (kind === "signal" && over != null) return <span class="faint">timed out</span>;
    if (over == null && until != null && Date.parse(until) > now.value)
      return (
        <span class="faint">
          until <When at={until} as="absolute" />
        </span>
      );
    return <None />;
  }
  if (value === undefined) return <span class="faint number">{bytes(size)}</span>;
  const text = kind === "jobs" && typeof value === "string" ? ended(value) : (JSON.stringify(value) ?? "null");
  if (text.length <= SHORT) return kind === "jobs" ? visible(text) : <code>{visible(text)}</code>;
  return (
    <details>
      <summary>
        <code>{visible(shortened(text, SHORT))}</code> <span class="faint number">{bytes(size)}</span>
      </summary>
      <pre class="block" tabIndex={0}>
        {visible(JSON.stringify(value, null, 2))}
      </pre>
    </details>
  );
}

const ENDED: Record<string, string> = { c: "completed", f: "failed", x: "cancelled", "-": "gone" };

/** A letter a job, in words: "18 completed, 2 failed". */
function ended(letters: string): string {
  return Object.entries(ENDED)
    .map(([letter, word]) => [letters.split(letter).length - 1, word] as const)
    .filter(([count]) => count > 0)
    .map(([count, word]) => `${count} ${word}`)
    .join(", ");
}

function Again({ step, retry }: { step: string; retry: NonNullable<Props["retry"]> }) {
  return (
    <Opener label="Retry from here…" class="quiet">
      {(close) => (
        <Confirm
          title={`Retry from “${visible(shortened(step, 60))}”?`}
          verb="Retry"
          close={close}
          run={(note) => retry(step, note)}
        >
          <p>This step and those stored after it run again; those before it keep their values.</p>
        </Confirm>
      )}
    </Opener>
  );
}

const MOST_CHILDREN = 10;

/** The jobs that a step runs: their states as a bar, and the newest of them. */
function Children({ step, batch }: { step: OpsStep; batch: string }) {
  const asked = useAnswer(at("/batch", { label: batch }));
  const jobs = useAnswer(at("/jobs", { batch, limit: MOST_CHILDREN }));
  const every = step.over == null ? 5_000 : 60_000;
  useFresh(asked.again, every, asked.problem);
  useFresh(jobs.again, every, jobs.problem);
  const found = asked.answer;
  return (
    <Card
      title={`Jobs of “${visible(shortened(step.name, 60))}”`}
      actions={found && <a href={href("/batch", { label: batch })}>{plural(found.total, "job")} as a batch</a>}
    >
      {found === undefined ? (
        <p class="faint">{asked.problem === undefined ? "…" : "None is stored any more."}</p>
      ) : (
        <StateBar states={found.states} />
      )}
      {found !== undefined && (
        <ul class="children">
          {jobs.answer?.jobs.map((each) => (
            <li key={each.id}>
              <Status display={each.display} /> <JobLink id={each.id} name={each.name} />
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
