// Time by duration, with the count as shade. A cell opens the jobs of its time.
import { useSignal } from "@preact/signals";
import { plural } from "../text";
import { count, duration } from "../time";
import { bounds, cells, shades, type Heat } from "./heat";
import { isLong, Numbers } from "./legend";
import { Plot, timesOf } from "./plot";
import { durationTicks, logarithmic } from "./scale";

interface Props {
  title: string;
  heat: Heat;
  steps: readonly { from: number; to: number }[];
  domain: readonly [number, number];
  onRange: (from: number, to: number) => void;
  /** Opens a cell: its step, and where its bucket begins. */
  onOpen: (step: { from: number; to: number }, begin: number) => void;
}

const HEIGHT = 220;

export function HeatMap({ title, heat, steps, domain: [low, high], onRange, onOpen }: Props) {
  const cursor = useSignal<number>();
  const row = useSignal(0);
  const scale = (size: number) => logarithmic(low, high, size, 0);
  const limits = shades(heat.matrix);
  const say = (index: number) => textOf(heat, steps, index, row.value);
  const move = (by: number) => {
    row.value = Math.max(0, Math.min(heat.buckets.length - 1, row.value + by));
    cursor.value ??= steps.length - 1;
  };
  return (
    <figure class="chart">
      <figcaption class="legend">
        <span>
          <b>{title}</b> <span class="faint">runs; a cell opens its jobs</span>
        </span>
        <Shades limits={limits} />
        <span class="faint times">
          {cursor.value === undefined ? "\u00a0" : say(Math.min(cursor.value, steps.length - 1))}
        </span>
      </figcaption>
      <Plot
        label={title}
        steps={steps}
        height={HEIGHT}
        scale={scale}
        ticks={durationTicks(low, high).map((value) => ({ value, text: duration(value) }))}
        cursor={cursor}
        say={say}
        onRange={onRange}
        onMove={(place, size) => (row.value = rowAt(heat, scale(size), place))}
        onKey={(key) => {
          if (key !== "ArrowUp" && key !== "ArrowDown") return false;
          move(key === "ArrowUp" ? 1 : -1);
          return true;
        }}
        onPress={() => {
          const [step, begin] = [steps[cursor.value ?? -1], heat.buckets[row.value]];
          if (step !== undefined && begin !== undefined) onOpen(step, begin);
        }}
      >
        {(x, y, at) => (
          <>
            {cells(heat, steps, x, y).map((path, shade) => (
              <path key={shade} class={`cell shade-${shade + 1 + 5 - limits.length}`} d={path} />
            ))}
            {at !== undefined && <Frame step={steps[at]} begin={heat.buckets[row.value]} x={x} y={y} />}
          </>
        )}
      </Plot>
      <Numbers
        title={title}
        unit="runs"
        layers={heat.buckets.map((begin) => ({ tone: "", title: begin < 1 ? "< 1 ms" : `≥ ${fine(begin)}` }))}
        format={String}
        steps={steps.map(({ from, to }, at) => ({ from, to, values: heat.matrix.map((counts) => counts[at] ?? 0) }))}
      />
    </figure>
  );
}

function textOf(heat: Heat, steps: readonly { from: number; to: number }[], index: number, row: number): string {
  const [step, begin] = [steps[index], heat.buckets[row]];
  if (step === undefined || begin === undefined) return "no data";
  const [low, high] = bounds(begin);
  return `${timesOf(step, isLong(steps))}, ${begin < 1 ? "below" : `${fine(low)} to`} ${fine(high)}: ${plural(heat.matrix[row]?.[index] ?? 0, "run")}`;
}

/** A duration, with a digit behind the point where buckets are that narrow. */
function fine(ms: number): string {
  return ms < 10 ? `${Math.round(ms * 10) / 10} ms` : duration(ms);
}

function rowAt(heat: Heat, y: (value: number) => number, place: number): number {
  const found = heat.buckets.findIndex((begin) => y(bounds(begin)[1]) <= place);
  return found < 0 ? heat.buckets.length - 1 : found;
}

function Shades({ limits }: { limits: readonly number[] }) {
  return (
    <span class="swatch" role="img" aria-label={`Shades, from light to dark, up to ${limits.join(", ")} runs`}>
      {limits.map((limit, at) => (
        <span key={limit}>
          <svg width="12" height="12" aria-hidden="true">
            <rect class={`cell shade-${at + 1 + 5 - limits.length}`} width="12" height="12" />
          </svg>
          <span class="faint">≤ {count(limit)} </span>
        </span>
      ))}
    </span>
  );
}

interface Framed {
  step: { from: number; to: number } | undefined;
  begin: number | undefined;
  x: (value: number) => number;
  y: (value: number) => number;
}

function Frame({ step, begin, x, y }: Framed) {
  if (step === undefined || begin === undefined) return null;
  const [low, high] = bounds(begin);
  return (
    <rect
      class="frame"
      x={x(step.from)}
      y={y(high)}
      width={Math.max(2, x(step.to) - x(step.from))}
      height={y(low) - y(high)}
    />
  );
}
