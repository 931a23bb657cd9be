// Days as ranges of time. Pure; the zone is given.
import type { Zone } from "../../time";

export interface Range {
  from: string | undefined;
  to: string | undefined;
}

const DAY = 86_400_000;

/** The days that a button chooses, each with its range; a day begins at midnight in the zone. */
export function ranges(now: number, zone: Zone): readonly (readonly [words: string, range: Range])[] {
  const day = (back: number) => new Date(midnight(now, back, zone)).toISOString();
  return [
    ["Any time", { from: undefined, to: undefined }],
    ["Today", { from: day(0), to: undefined }],
    ["Yesterday", { from: day(1), to: day(0) }],
    ["Last 7 days", { from: day(7), to: undefined }],
  ];
}

function midnight(now: number, back: number, zone: Zone): number {
  if (zone === "utc") return now - (now % DAY) - back * DAY;
  const at = new Date(now);
  // Days are counted by the calendar: one of them may have 23 or 25 hours.
  return new Date(at.getFullYear(), at.getMonth(), at.getDate() - back).getTime();
}
