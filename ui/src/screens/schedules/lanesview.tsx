// All schedules as lanes of the next 24 hours.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { act } from "../../api";
import type { OpsSchedule, OpsSchedulePreview } from "../../api.gen";
import { useWidth } from "../../charts/plot";
import { DAY, linear, timeTicks, type Scale } from "../../charts/scale";
import { href } from "../../router";
import { now, zone } from "../../store";
import { axisTime, clock } from "../../time";
import { bandsOf, knownUntil, timesOf, wanted, type Band } from "./lanes";
import { nameOf } from "./parts";

const HEIGHT = 22;
const CLOSEST_PX = 4;
const MOST_LANES = 30;

export function Lanes({ schedules }: { schedules: readonly OpsSchedule[] }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const all = useSignal(false);
  const from = Math.floor(now.value / 60_000) * 60_000;
  const x = linear(from, from + DAY, 1, width - 1);
  const shown = all.value ? schedules : schedules.slice(0, MOST_LANES);
  const known = usePreviews(shown, from);
  return (
    <section aria-labelledby="lanes">
      <h2 id="lanes">Next 24 hours</h2>
      <div class="lanes">
        <span class="faint">{zone.value === "utc" ? "UTC" : "local time"}</span>
        <div ref={box}><Axis x={x} from={from} width={width} /></div>
        {shown.map((schedule) => {
          const runs = known.get(keyOf(schedule, from)) ?? [];
          return (
            <Lane key={schedule.id} schedule={schedule} width={width} x={x} until={knownUntil(schedule, runs, from + DAY)}
              bands={bandsOf(schedule, runs, from, from + DAY, (DAY / width) * CLOSEST_PX)} />
          );
        })}
      </div>
      {schedules.length > shown.length && <button type="button" onClick={() => (all.value = true)}>Show {schedules.length - shown.length} more lanes</button>}
    </section>
  );
}

function Axis({ x, from, width }: { x: Scale; from: number; width: number }) {
  const { step, at } = timeTicks(from, from + DAY, Math.floor(width / 70), offset);
  return (
    <svg width={width} height={16} aria-hidden="true">
      {at.filter((each) => x(each) > 12 && x(each) < width - 16).map((each) => <text key={each} class="tick" x={x(each)} y={12} text-anchor="middle">{axisTime(each, step, zone.value)}</text>)}
    </svg>
  );
}

function offset(at: number): number {
  return zone.value === "utc" ? 0 : -new Date(at).getTimezoneOffset() * 60_000;
}

interface Given {
  schedule: OpsSchedule;
  bands: readonly Band[];
  x: Scale;
  width: number;
  until: number;
}

function Lane({ schedule, bands, x, width, until }: Given) {
  const words = schedule.state === "paused" ? "paused" : bands.length === 0 ? "no run in the next 24 hours" : bands.map(wordsOf).slice(0, 12).join(", ");
  return (
    <>
      <a href={href(`/schedules/${encodeURIComponent(schedule.id)}`)} title={nameOf(schedule, 200)}>{nameOf(schedule, 40)}</a>
      <svg width={width} height={HEIGHT} role="img" aria-label={words}>
        <path class="grid" d={`M0 ${HEIGHT - 0.5}H${width}`} />
        {bands.map((band) => (
          <rect key={band.from} class="fill-plain" x={x(band.from) - 1.5} y={4} width={x(band.to) - x(band.from) + 3} height={HEIGHT - 9} rx={1}>
            <title>{wordsOf(band)}</title>
          </rect>
        ))}
        {x(until) < width - 2 && <text class="tick" x={x(until) + 6} y={15}>and so on</text>}
        {bands.length === 0 && <text class="tick" x={2} y={15}>{words}</text>}
      </svg>
    </>
  );
}

function wordsOf({ from, to, runs }: Band): string {
  const time = (at: number) => clock(at, zone.value, false);
  if (from === to) return time(from);
  return `${time(from)} to ${time(to)}${runs === undefined ? "" : `, ${runs} runs`}`;
}

const HOUR = 3_600_000;

/** What a preview depends on. As the hours pass, it must reach further. */
function keyOf({ cron, timezone }: OpsSchedule, from: number): string {
  return `${Math.floor(from / HOUR)} ${timezone} ${cron}`;
}

/** Runs beyond those of the list, asked for once an hour, expression and zone, one after the other. */
function usePreviews(schedules: readonly OpsSchedule[], from: number): ReadonlyMap<string, number[]> {
  const known = useSignal<ReadonlyMap<string, number[]>>(new Map());
  const missing = schedules.find((each) => wanted(each, from + DAY) > 0 && !known.value.has(keyOf(each, from)));
  const key = missing && keyOf(missing, from);
  useEffect(() => {
    if (missing === undefined || key === undefined) return;
    const body = { cron: missing.cron, timezone: missing.timezone ?? "UTC", count: wanted(missing, from + DAY + HOUR) };
    const keep = (times: number[]) => (known.value = new Map(known.value).set(key, times));
    act<OpsSchedulePreview>("POST", "/schedules/preview", body).then((found) => keep(timesOf(found.nextRuns)), () => keep([]));
  }, [key]);
  return known.value;
}
