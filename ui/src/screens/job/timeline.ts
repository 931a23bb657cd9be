// The life of a job as lanes of segments, and where they stand on the axis. Pure.
import type { OpsAttempt, OpsAuditEntry, OpsJobAnswer } from "../../api.gen";
import { duration } from "../../time";

/**
 * planned: its time has not come. wait: due, nobody runs it. suspended: its handler waits in a step, without a process.
 * rest: ended, until somebody retries it. silent: its owner does not report.
 */
export type Kind = "planned" | "wait" | "suspended" | "run" | "backoff" | "rest" | "silent";

export interface Segment {
  kind: Kind;
  from: number;
  to: number;
  /** Of a run: how it ended. */
  outcome?: string;
  /** Of a suspended handler: the step in which it waits. */
  step?: string;
}

export interface Lane {
  number: number;
  segments: Segment[];
  attempt?: OpsAttempt;
}

export interface Mark {
  at: number;
  words: string;
  isSignal?: boolean;
}

/** A step or a wait of the handler. */
export interface StepBar {
  name: string;
  kind: string;
  waits: boolean;
  from: number;
  to: number;
}

export interface TimeLine {
  lanes: Lane[];
  steps: StepBar[];
  marks: Mark[];
  from: number;
  to: number;
}

export function timeLine(job: OpsJobAnswer, now: number): TimeLine {
  const steps = stepsOf(job, now);
  const pauses = pausesOf(job, steps);
  const lanes = lanesOf(job, now, pauses).map((lane) => ({
    ...lane,
    segments: lane.segments.flatMap((each) => carved(each, pauses)),
  }));
  const marks = marksOf(job);
  const times = [
    ...lanes.flatMap((lane) => lane.segments.flatMap(({ from, to }) => [from, to])),
    ...marks.map((mark) => mark.at),
  ];
  const from = times.length === 0 ? now : Math.min(...times);
  return { lanes, steps, marks, from, to: Math.max(from + 1, ...times) };
}

const WAITS = ["sleep", "signal", "jobs"];

/** A step is stored when it is done, and a wait when it begins. */
function stepsOf(job: OpsJobAnswer, now: number): StepBar[] {
  return (job.steps ?? []).flatMap((step): StepBar[] => {
    const { name, kind } = step;
    const at = time(step.at);
    if (at === undefined) return [];
    if (!WAITS.includes(kind)) return [{ name, kind, waits: false, from: at - (step.durationMs ?? 0), to: at }];
    const active = job.status === "pending" || job.status === "processing";
    const latest = active ? now : (time(job.finishedAt ?? job.updatedAt) ?? now);
    const to = time(step.over) ?? Math.min(time(step.until) ?? latest, latest);
    return [{ name, kind, waits: true, from: at, to: Math.max(at, to) }];
  });
}

/** A wait, and how long the run took that ended in it. */
interface Pause extends StepBar {
  ran: number;
}

function pausesOf(job: OpsJobAnswer, steps: readonly StepBar[]): Pause[] {
  const ran = new Map((job.steps ?? []).map((step) => [step.name, step.durationMs ?? 0]));
  return steps
    .filter(({ waits, from, to }) => waits && to > from)
    .map((step) => ({ ...step, ran: ran.get(step.name) ?? 0 }))
    .sort((a, b) => a.from - b.from);
}

/** Cut the waits of the handler, and the runs that ended in them, out of a time without a run: no attempt has them. */
function carved(segment: Segment, pauses: readonly Pause[]): Segment[] {
  if (segment.kind === "run" || segment.kind === "silent") return [segment];
  const found: Segment[] = [];
  let at = segment.from;
  for (const { from, to, ran, name } of pauses) {
    if (to <= at || from >= segment.to) continue;
    const begun = Math.max(at, from - ran);
    found.push({ kind: "wait", from: at, to: begun });
    found.push({ kind: "run", from: begun, to: Math.max(begun, from), outcome: "waited" });
    found.push({ kind: "suspended", from: Math.max(at, from), to: Math.min(to, segment.to), step: name });
    at = Math.min(to, segment.to);
  }
  return [...found, { ...segment, from: at }].filter((each) => each.to > each.from);
}

/** When a run began, of a job whose runs count as one: after the last wait. */
function begun(started: number, ended: number, pauses: readonly Pause[]): number {
  return Math.max(started, ...pauses.map(({ to }) => to).filter((to) => to <= ended));
}

function lanesOf(job: OpsJobAnswer, now: number, pauses: readonly Pause[]): Lane[] {
  const attempts = (job.attempts ?? []).filter((each) => each.finishedAt != null);
  const whole = (job.attemptsTotal ?? 0) <= attempts.length;
  let before: Before = { at: whole ? beginOf(job) : undefined, outcome: undefined };
  const lanes: Lane[] = [];
  for (const [index, attempt] of attempts.entries()) {
    const isLast = index === attempts.length - 1 && job.status !== "pending" && job.status !== "processing";
    const run = runOf(attempt, pauses);
    lanes.push({ number: attempt.number, attempt, segments: [...gap(before, run.from, job, isLast), run] });
    before = { at: run.to, outcome: attempt.outcome };
  }
  const last = openLane(job, before, now, pauses);
  return last === undefined ? lanes : [...lanes, last];
}

interface Before {
  at: number | undefined;
  outcome: string | undefined;
}

/** A schedule is one document for all its runs: the time before its last change tells nothing. */
function beginOf(job: OpsJobAnswer): number | undefined {
  return time(job.recurring == null ? job.createdAt : job.updatedAt);
}

function runOf({ startedAt, finishedAt, outcome }: OpsAttempt, pauses: readonly Pause[]): Segment {
  const to = time(finishedAt) as number;
  const from = Math.min(time(startedAt) ?? to, to);
  // Of a lost run we know when its owner was last alive, and when others noticed.
  if (outcome === "lost") return { kind: "silent", from, to, outcome };
  return { kind: "run", from: begun(from, to, pauses), to, outcome };
}

/** What was between the end of a run (or the beginning) and the next run. The due time is stored for the last run only. */
function gap(before: Before, start: number, job: OpsJobAnswer, isLast: boolean): Segment[] {
  const begin = before.at;
  if (begin === undefined || begin >= start) return [];
  if (before.outcome === "failed" || before.outcome === "cancelled") {
    const retried = retriedAt(job.audit ?? [], begin, start);
    return pieces([
      ["rest", begin, retried],
      ["wait", retried, start],
    ]);
  }
  const due = isLast && job.recurring == null ? time(job.nextRunAt) : undefined;
  const kind = before.outcome === undefined ? "planned" : "backoff";
  if (due !== undefined && due >= begin && due <= start)
    return pieces([
      [kind, begin, due],
      ["wait", due, start],
    ]);
  return pieces([[before.outcome === undefined ? "wait" : "backoff", begin, start]]);
}

function retriedAt(entries: readonly OpsAuditEntry[], from: number, to: number): number {
  const found = entries
    .filter((entry) => entry.action.startsWith("retry") && entry.outcome === "done")
    .map((entry) => Date.parse(entry.at));
  return found.find((at) => at >= from && at <= to) ?? to;
}

/** The lane of a run that goes on, or has not begun. */
function openLane(job: OpsJobAnswer, before: Before, now: number, pauses: readonly Pause[]): Lane | undefined {
  if (job.status === "processing") return { number: job.attempt, segments: runningOf(job, before, now) };
  if (job.status === "pending") return { number: job.attempt + 1, segments: waitingOf(job, before, now) };
  // Ended without a run that was stored: all we know is when it was created and when it ended.
  const end = time(job.finishedAt ?? job.updatedAt);
  if (before.outcome !== undefined || before.at === undefined || end === undefined || end <= before.at)
    return undefined;
  const number = Math.max(1, job.attempt); // one that was cancelled before it ran has had none
  const started = time(job.startedAt);
  if (started === undefined) return { number, segments: pieces([["wait", before.at, end]]) };
  const from = begun(started, end, pauses);
  return { number, segments: [...gap(before, from, job, true), { kind: "run", from, to: end, outcome: job.status }] };
}

function runningOf(job: OpsJobAnswer, before: Before, now: number): Segment[] {
  const heard = time(job.lastHeartbeat) ?? now;
  const start = time(job.startedAt) ?? Math.max(before.at ?? heard, Math.min(heard, now));
  const until = job.stale === true ? Math.max(start, heard) : Math.max(start, now);
  const run: Segment = { kind: "run", from: start, to: until, outcome: "running" };
  return [...gap(before, start, job, true), run, ...pieces([["silent", until, now]])];
}

function waitingOf(job: OpsJobAnswer, before: Before, now: number): Segment[] {
  const begin = before.at ?? time(job.updatedAt) ?? now;
  const due = time(job.nextRunAt);
  const kind = before.outcome === undefined ? "planned" : "backoff";
  if (due === undefined) return pieces([[job.waitsFor == null ? "wait" : "planned", begin, now]]);
  return pieces([
    [kind, begin, due],
    ["wait", Math.max(due, begin), now],
  ]);
}

function pieces(given: readonly (readonly [Kind, number, number])[]): Segment[] {
  return given.filter(([, from, to]) => to > from).map(([kind, from, to]) => ({ kind, from, to }));
}

function marksOf(job: OpsJobAnswer): Mark[] {
  const actions = (job.audit ?? []).filter((entry) => entry.outcome === "done");
  return [
    ...actions.map((entry) => ({
      at: Date.parse(entry.at),
      words: `${entry.words} by ${entry.actor}${entry.note == null ? "" : `: ${entry.note}`}`,
    })),
    ...signalsOf(job),
  ];
}

/** Signals that a run has received, and those that wait for one. */
function signalsOf(job: OpsJobAnswer): Mark[] {
  const received = (job.steps ?? [])
    .filter(({ kind, over, size }) => kind === "signal" && over != null && size != null)
    .map(({ name, over }) => ({ at: time(over) as number, words: `received the signal of “${name}”`, isSignal: true }));
  const waiting = (job.signals ?? []).flatMap(({ name, at }) =>
    at == null
      ? []
      : [{ at: Date.parse(at), words: `the signal “${name}” came; nobody has received it`, isSignal: true }],
  );
  return [...received, ...waiting];
}

function time(text: string | null | undefined): number | undefined {
  return text == null ? undefined : Date.parse(text);
}

/** The look of a segment, as classes. */
export function lookOf({ kind, outcome }: Segment): string {
  return kind === "run" ? `run ended-${outcome}` : kind;
}

const MEANINGS: Partial<Record<string, string>> = {
  planned: "not due",
  backoff: "not due",
  rest: "not due",
  wait: "due",
  suspended: "handler waits",
  silent: "owner silent",
  "run ended-completed": "completed",
  "run ended-retried": "retried",
  "run ended-failed": "failed",
  "run ended-timed_out": "failed",
  "run ended-cancelled": "cancelled",
};

/** What a look means. */
export function meaningOf(look: string): string {
  return MEANINGS[look] ?? "runs";
}

/** What the looks mean that a time line has, each with one of them. */
export function meaningsOf({ lanes, steps }: TimeLine): Map<string, string> {
  const looks = lanes.flatMap(({ segments }) => segments.map(lookOf));
  const all = [...looks, ...steps.map(({ waits }) => (waits ? "suspended" : "run"))];
  return new Map(all.map((look) => [meaningOf(look), look]));
}

// ---- the axis

export interface Axis {
  x: (at: number) => number;
  /** Where time is compressed. */
  breaks: { from: number; to: number }[];
  ticks: { x: number; text: string }[];
}

// Each stretch of time can be seen and pointed at, however short it is.
const LEAST = 4;
// The room of a letter on the axis.
const LETTER = 6.5;

/** A true scale, on which long stretches without a run are compressed: together they get about as much room as the runs. */
export function axisOf(line: TimeLine, width: number): Axis {
  const runs = line.lanes.flatMap((lane) => lane.segments.filter((each) => each.kind === "run"));
  const edges = [
    ...new Set([
      line.from,
      line.to,
      ...line.lanes.flatMap((lane) => lane.segments.flatMap(({ from, to }) => [from, to])),
    ]),
  ].sort((a, b) => a - b);
  const stretches = edges.slice(1).map((to, at) => {
    const from = edges[at] as number;
    return { from, to, idle: !runs.some((run) => run.from <= from && run.to >= to && run.to > run.from) };
  });
  const most = longestIdle(stretches);
  const weights = stretches.map(({ from, to, idle }) => (idle ? Math.min(to - from, most) : to - from));
  const unit =
    (width - LEAST * stretches.length) /
    Math.max(
      1e-9,
      weights.reduce((sum, each) => sum + each, 0),
    );
  const places = [0];
  for (const weight of weights) places.push((places.at(-1) as number) + LEAST + weight * unit);
  return {
    x: (at) => placeOf(at, edges, places),
    breaks: stretches.filter(({ from, to, idle }) => idle && to - from > most).map(({ from, to }) => ({ from, to })),
    ticks: ticksOf(edges, places, width),
  };
}

function longestIdle(stretches: readonly { from: number; to: number; idle: boolean }[]): number {
  const busy = stretches.reduce((sum, { from, to, idle }) => sum + (idle ? 0 : to - from), 0);
  const idle = stretches.filter((each) => each.idle).length;
  return busy === 0 ? Infinity : (1.2 * busy) / Math.max(1, idle);
}

function placeOf(at: number, edges: readonly number[], places: readonly number[]): number {
  const next = Math.max(
    1,
    edges.findIndex((edge) => edge >= at),
  );
  const [from, to] = [edges[next - 1] as number, edges[next] ?? (edges[next - 1] as number)];
  const [left, right] = [places[next - 1] as number, places[next] ?? (places[next - 1] as number)];
  return to === from ? left : left + ((at - from) / (to - from)) * (right - left);
}

/** How long after the beginning, at edges whose texts do not touch; the first text is the time of the beginning. */
function ticksOf(edges: readonly number[], places: readonly number[], width: number): Axis["ticks"] {
  const found: Axis["ticks"] = [];
  let free = LETTER * 18;
  for (const [index, edge] of edges.entries()) {
    const x = places[index] as number;
    const text = `+${duration(edge - (edges[0] as number))}`;
    const half = (text.length * LETTER) / 2;
    if (x - half < free || x + half > width) continue;
    found.push({ x, text });
    free = x + half + 2 * LETTER;
  }
  return found;
}
