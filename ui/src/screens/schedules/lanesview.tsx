// All schedules as lanes of the next 24 hours.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { at } from "../../api";
import type { OpsBand, OpsSchedule } from "../../api.gen";
import { useWidth } from "../../charts/plot";
import { DAY, linear, timeTicks, type Scale } from "../../charts/scale";
import { useAnswer } from "../../parts/asking";
import { useFresh } from "../../parts/fresh";
import { href, under } from "../../router";
import { now, zone } from "../../store";
import { axisTime, clock } from "../../time";
import { nameOf } from "./parts";

const HEIGHT = 22;
const MOST_LANES = 30;

export function Lanes({ schedules }: { schedules: readonly OpsSchedule[] }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const all = useSignal(false);
  const from = Math.floor(now.value / 60_000) * 60_000;
  const x = linear(from, from + DAY, 1, width - 1);
  const shown = all.value ? schedules : schedules.slice(0, MOST_LANES);
  const asked = useAnswer(at("/schedules/lanes"));
  useFresh(asked.again, 60_000);
  return (
    <section aria-labelledby="lanes">
      <h2 id="lanes">Next 24 hours</h2>
      <div class="lanes">
        <span class="faint">{zone.value === "utc" ? "UTC" : "local time"}</span>
        <div ref={box}>
          <Axis x={x} from={from} width={width} />
        </div>
        {shown.map((schedule) => (
          <Lane key={schedule.id} schedule={schedule} width={width} x={x} bands={asked.answer?.lanes[schedule.id]} />
        ))}
      </div>
      {schedules.length > shown.length && (
        <button type="button" onClick={() => (all.value = true)}>
          Show {schedules.length - shown.length} more lanes
        </button>
      )}
    </section>
  );
}

function Axis({ x, from, width }: { x: Scale; from: number; width: number }) {
  const { step, at } = timeTicks(from, from + DAY, Math.floor(width / 70), offset);
  return (
    <svg width={width} height={16} aria-hidden="true">
      {at
        .filter((each) => x(each) > 12 && x(each) < width - 16)
        .map((each) => (
          <text key={each} class="tick" x={x(each)} y={12} text-anchor="middle">
            {axisTime(each, step, zone.value)}
          </text>
        ))}
    </svg>
  );
}

function offset(at: number): number {
  return zone.value === "utc" ? 0 : -new Date(at).getTimezoneOffset() * 60_000;
}

interface Props {
  schedule: OpsSchedule;
  bands: readonly OpsBand[] | undefined;
  x: Scale;
  width: number;
}

function Lane({ schedule, bands, x, width }: Props) {
  const words =
    schedule.state === "paused"
      ? "paused"
      : bands === undefined
        ? ""
        : bands.map(wordsOf).slice(0, 12).join(", ") || "no run in the next 24 hours";
  return (
    <>
      <a href={href(under("/schedules", schedule.id))} title={nameOf(schedule, 200)}>
        {nameOf(schedule, 40)}
      </a>
      <svg width={width} height={HEIGHT} role="img" aria-label={words}>
        <path class="grid" d={`M0 ${HEIGHT - 0.5}H${width}`} />
        {bands?.map((band) => {
          const [left, right] = [x(Date.parse(band.from)), x(Date.parse(band.to))];
          return (
            <rect
              key={band.from}
              class="fill-plain"
              x={left - 1.5}
              y={4}
              width={right - left + 3}
              height={HEIGHT - 9}
              rx={1}
            >
              <title>{wordsOf(band)}</title>
            </rect>
          );
        })}
        {bands?.length === 0 && (
          <text class="tick" x={2} y={15}>
            {words}
          </text>
        )}
      </svg>
    </>
  );
}

function wordsOf({ from, to, runs }: OpsBand): string {
  const time = (at: string) => clock(Date.parse(at), zone.value, false);
  return from === to ? time(from) : `${time(from)} to ${time(to)}${runs == null ? "" : `, ${runs} runs`}`;
}
