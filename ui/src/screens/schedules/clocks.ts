// When the clocks of a zone change. Pure.

export interface ClockChange {
  /** The local date, "2027-11-07". */
  day: string;
  direction: "forward" | "back";
}

const DAY = 86_400_000;
// As far as the server looks for skipped and repeated times.
const DAYS = 400;

/** The changes of the clocks that are to come in a zone; none where there is no such zone. */
export function clockChanges(timeZone: string, from: number): ClockChange[] {
  const offset = offsetIn(timeZone);
  if (offset === undefined) return [];
  const found: ClockChange[] = [];
  for (let at = from, before = offset(from); at < from + DAYS * DAY; at += DAY) {
    const after = offset(at + DAY);
    if (after !== before) found.push({ day: dayOfChange(at, offset), direction: after > before ? "forward" : "back" });
    before = after;
  }
  return found;
}

/** The first moment with the new offset, by halving, as a local date. */
function dayOfChange(start: number, offset: (at: number) => number): string {
  let [low, high] = [start, start + DAY];
  while (high - low > 60_000) {
    const middle = (low + high) / 2;
    if (offset(middle) === offset(start)) low = middle;
    else high = middle;
  }
  return new Date(high + offset(start)).toISOString().slice(0, 10);
}

function offsetIn(timeZone: string): ((at: number) => number) | undefined {
  try {
    const format = new Intl.DateTimeFormat("sv", { timeZone, dateStyle: "short", timeStyle: "medium" });
    return (at) => {
      const second = Math.floor(at / 1000) * 1000;
      return Date.parse(`${format.format(second).replace(" ", "T")}Z`) - second;
    };
  } catch {
    return undefined;
  }
}
