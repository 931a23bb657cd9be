// Times and durations as people read them. All functions are pure; `zone` and `now` are given to them.
import { grouped } from "./text";

export type Zone = "local" | "utc";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const YEAR = 365 * DAY;

/** A duration, exact below a minute: "340 ms", "1.24 s", "12 min 5 s", "3 h 2 min", "2 d 4 h", "1 y 2 d". */
export function duration(ms: number): string {
  const sign = ms < 0 ? "−" : "";
  const size = Math.abs(ms);
  if (size < SECOND) return `${sign}${Math.round(size)} ms`;
  if (size < MINUTE) {
    const text = (size / SECOND).toFixed(size < 10 * SECOND ? 2 : 1).replace(/\.?0+$/, "");
    return text === "60" ? `${sign}1 min` : `${sign}${text} s`;
  }
  if (size < HOUR) return sign + parts(size, MINUTE, "min", SECOND, "s");
  if (size < DAY) return sign + parts(size, HOUR, "h", MINUTE, "min");
  if (size < YEAR) return sign + parts(size, DAY, "d", HOUR, "h");
  return sign + parts(size, YEAR, "y", DAY, "d");
}

function parts(size: number, big: number, bigName: string, small: number, smallName: string): string {
  const whole = Math.floor(size / big);
  const rest = Math.floor((size - whole * big) / small);
  return rest === 0 ? `${whole} ${bigName}` : `${whole} ${bigName} ${rest} ${smallName}`;
}

/** A duration that ticks, in whole seconds: "0 s", "14 s", "2 min 5 s". */
export function age(ms: number): string {
  return ms < SECOND ? "0 s" : duration(Math.floor(ms / SECOND) * SECOND);
}

/** How long ago, or how soon: "12 s ago", "in 5 min". */
export function relative(at: number, now: number): string {
  const away = at - now;
  if (Math.abs(away) < SECOND) return "now";
  const size = Math.abs(away);
  const text = size < MINUTE ? `${Math.floor(size / SECOND)} s` : duration(size);
  return away < 0 ? `${text} ago` : `in ${text}`;
}

/** A moment with its zone: "14:02:11 CET" today, "17 Nov, 14:02:11 CET" on other days of the year. */
export function absolute(at: number, zone: Zone, now: number, locale?: string): string {
  const timeZone = zone === "utc" ? "UTC" : undefined;
  const day = dayOf(at, timeZone);
  const withDay = day !== dayOf(now, timeZone);
  const withYear = day.slice(0, 4) !== dayOf(now, timeZone).slice(0, 4);
  return format(locale, {
    ...(withDay ? { day: "numeric", month: "short" } : {}),
    ...(withYear ? { year: "numeric" } : {}),
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
    timeZone,
  }).format(at);
}

/** A moment by the clocks of another place, from "2027-03-11T02:30:00": "11 Mar, 02:30". */
export function elsewhere(local: string, now: number, locale?: string): string {
  return format(locale, {
    day: "numeric",
    month: "short",
    ...(local.slice(0, 4) === dayOf(now, "UTC").slice(0, 4) ? {} : { year: "numeric" }),
    hour: "2-digit",
    minute: "2-digit",
    ...(local.endsWith(":00") ? {} : { second: "2-digit" }),
    timeZone: "UTC",
  }).format(Date.parse(`${local}Z`));
}

/** A sentence of the server, which names times of UTC, with the reader's; on the day of `now` it names no date. */
export function localized(sentence: string, zone: Zone, now: number, locale?: string): string {
  return sentence.replace(/(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d(:\d\d)?) UTC/g, (_, day, time) =>
    absolute(Date.parse(`${day ?? dayOf(now, "UTC")}T${time}Z`), zone, now, locale),
  );
}

/** A moment without a doubt, for titles and copies: with milliseconds and zone. */
export function exact(at: number, zone: Zone, locale?: string): string {
  return format(locale, {
    year: "numeric",
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    timeZoneName: "short",
    timeZone: zone === "utc" ? "UTC" : undefined,
  }).format(at);
}

/** The clock time on an axis. */
export function clock(at: number, zone: Zone, withDay: boolean, locale?: string): string {
  return format(locale, {
    ...(withDay ? { day: "numeric", month: "short" } : {}),
    hour: "2-digit",
    minute: "2-digit",
    timeZone: zone === "utc" ? "UTC" : undefined,
  }).format(at);
}

/** The text of a tick on an axis: the day where one begins, else the time. */
export function axisTime(at: number, step: number, zone: Zone, locale?: string): string {
  const timeZone = zone === "utc" ? "UTC" : undefined;
  if (step < DAY && clock(at, zone, false, "sv") !== "00:00") return clock(at, zone, false, locale);
  return format(locale, { day: "numeric", month: "short", timeZone }).format(at);
}

function dayOf(at: number, timeZone: string | undefined): string {
  return format("sv", { year: "numeric", month: "2-digit", day: "2-digit", timeZone }).format(at);
}

type Format = Omit<Intl.DateTimeFormatOptions, "timeZone"> & { timeZone?: string | undefined };
const formats = new Map<string, Intl.DateTimeFormat>();

/** To make a format takes longer than to use it a hundred times. */
function format(locale: string | undefined, options: Format): Intl.DateTimeFormat {
  const { timeZone, ...rest } = options;
  const given: Intl.DateTimeFormatOptions = {
    hourCycle: "h23",
    ...rest,
    ...(timeZone === undefined ? {} : { timeZone }),
  };
  const key = `${locale} ${JSON.stringify(given)}`;
  const known = formats.get(key);
  if (known !== undefined) return known;
  const made = new Intl.DateTimeFormat(locale, given);
  formats.set(key, made);
  return made;
}

/** A whole number, with all its digits below a million: "12,480", "1.2 M". */
export function count(value: number): string {
  if (Math.abs(value) < 1_000_000) return grouped(value);
  for (const [size, unit] of [
    [1e9, "G"],
    [1e6, "M"],
  ] as const) {
    if (Math.abs(value) >= size) return `${(value / size).toFixed(value < 10 * size ? 1 : 0)} ${unit}`;
  }
  return String(value);
}

/** Milliseconds since the epoch of a time in an answer; undefined if there is none. */
export function moment(text: string | null | undefined): number | undefined {
  return text === null || text === undefined ? undefined : Date.parse(text);
}
