import { useSignal } from "@preact/signals";
import { count } from "../time";
import { Legend, Numbers, sentence, type Described, type Layer } from "./legend";
import { Plot, type Mark } from "./plot";
import { linear, ticks } from "./scale";
import { highest, stacked, type Step } from "./steps";

interface Props {
  title: string;
  unit: string;
  /** From the bottom to the top. */
  layers: readonly Layer[];
  steps: readonly Step[];
  marks?: readonly Mark[];
  height?: number;
  onRange: (from: number, to: number) => void;
  /** Said where there is nothing to draw. */
  empty?: string;
}

const NOTHING = "No data in this time.";

/** Stacked numbers over time from a zero baseline, with a legend that shows the values under the crosshair. */
export function AreaChart({ title, unit, layers, steps, marks = [], height = 200, onRange, empty = NOTHING }: Props) {
  const cursor = useSignal<number>();
  const found = ticks(highest(steps), height < 150 ? 2 : 4);
  const top = found.at(-1) as number;
  if (isEmpty(steps)) return <EmptyChart title={title} unit={unit} words={empty} />;
  const all: Described = { title, unit, layers, steps, format: rounded };
  return (
    <figure class="chart">
      <Legend
        {...all}
        cursor={cursor}
        swatch={(layer) => <rect class={`fill-${layer.tone}`} width="12" height="12" rx="2" />}
      />
      <Plot
        label={`${title}, ${unit}`}
        steps={steps}
        height={height}
        scale={(size) => linear(0, top, size, 0)}
        ticks={found.map((value) => ({ value, text: count(value) }))}
        marks={marks}
        cursor={cursor}
        say={(index) => sentence(all, index)}
        onRange={onRange}
      >
        {(x, y) =>
          stacked(steps, layers.length, x, y).map((path, at) => (
            <path key={at} class={`layer fill-${layers[at]?.tone}`} d={path} />
          ))
        }
      </Plot>
      <Numbers {...all} />
    </figure>
  );
}

/** Numbers below ten have a digit behind the point, if it says anything. */
function rounded(value: number): string {
  return value < 10 ? String(Math.round(value * 10) / 10) : count(Math.round(value));
}

/** Whether there is nothing to draw. */
export function isEmpty(steps: readonly Step[]): boolean {
  return !steps.some((step) => step.values?.some((value) => value > 0));
}

/** A chart without data says so, instead of drawing an axis from 0 to 1. */
export function EmptyChart({ title, unit, words = NOTHING }: { title: string; unit: string; words?: string }) {
  return (
    <figure class="chart">
      <figcaption class="legend">
        <span>
          <b>{title}</b> <span class="faint">{unit}</span>
        </span>
      </figcaption>
      <p class="empty">{words}</p>
    </figure>
  );
}
