// The next 24 hours of schedules: which runs to ask for, and how they stand on a lane. Pure.
import type { OpsSchedule } from "../../api.gen";

/** Runs that are too near to each other to be told apart are one band. */
export interface Band {
  from: number;
  to: number;
  /** How many runs; undefined where they are too many to be listed. */
  runs: number | undefined;
}

// The list names so many next runs of each schedule.
const LISTED = 5;
// The most that a preview gives.
const MOST = 1_000;

/** How many runs of a cron schedule to ask for, so that they reach `until`; 0 if those of the list do. */
export function wanted(schedule: OpsSchedule, until: number): number {
  const runs = timesOf(schedule.nextRuns);
  const [first, last] = [runs[0], runs.at(-1)];
  if (schedule.cron == null || first === undefined || last === undefined || runs.length < LISTED || last >= until) return 0;
  const gap = (last - first) / (runs.length - 1);
  return Math.min(MOST, Math.ceil((until - first) / gap) + 1);
}

export function timesOf(runs: readonly { at: string }[]): number[] {
  return runs.map((run) => Date.parse(run.at));
}

/** The bands of a schedule between two times, at least `closest` milliseconds apart. `known` are previewed runs. */
export function bandsOf(schedule: OpsSchedule, known: readonly number[], from: number, until: number, closest: number): Band[] {
  const listed = timesOf(schedule.nextRuns);
  const every = schedule.everyMs;
  if (every == null) return joined((known.length > listed.length ? known : listed).filter((at) => at >= from && at <= until), closest);
  const first = listed[0];
  if (first === undefined || first > until) return [];
  if (every < closest) return [{ from: first, to: until, runs: undefined }];
  return joined(Array.from({ length: Math.floor((until - first) / every) + 1 }, (_, at) => first + at * every), closest);
}

function joined(times: readonly number[], closest: number): Band[] {
  const bands: Band[] = [];
  for (const at of times) {
    const last = bands.at(-1);
    if (last !== undefined && at - last.to < closest) {
      last.to = at;
      last.runs = (last.runs ?? 0) + 1;
    } else bands.push({ from: at, to: at, runs: 1 });
  }
  return bands;
}

/** Where the known runs end before the lane does: what comes then is not known. */
export function knownUntil(schedule: OpsSchedule, known: readonly number[], until: number): number {
  const last = known.at(-1);
  return schedule.everyMs == null && known.length >= MOST && last !== undefined ? Math.min(last, until) : until;
}
