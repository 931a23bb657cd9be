// Stacked numbers over time, with a legend that shows the values under the crosshair, and a table of the same numbers.
import { useSignal, type Signal } from "@preact/signals";
import { DAY, linear, ticks } from "./scale";
import { highest, stacked, type Step } from "./steps";
import { Plot, timesOf, type Mark } from "./plot";
import { count } from "../time";

export interface Layer {
  /** The class of its colour. */
  tone: string;
  title: string;
}

interface Given {
  title: string;
  unit: string;
  /** From the bottom to the top. */
  layers: readonly Layer[];
  steps: readonly Step[];
  marks?: readonly Mark[];
  height?: number;
  onRange?: (from: number, to: number) => void;
}

export function AreaChart({ title, unit, layers, steps, marks = [], height = 200, onRange }: Given) {
  const cursor = useSignal<number | undefined>(undefined);
  const found = ticks(highest(steps), height < 150 ? 2 : 4);
  const top = found.at(-1) as number;
  const withDay = isLong(steps);
  const say = (index: number) => {
    const step = steps[index] as Step;
    const values = layers.map((layer, at) => `${layer.title} ${rounded(step.values?.[at] ?? 0)}`).join(", ");
    return `${timesOf(step, withDay)}: ${step.values === null ? "no data" : values}`;
  };
  return (
    <figure class="chart">
      <Legend title={title} unit={unit} layers={layers} steps={steps} cursor={cursor} withDay={withDay} />
      <Plot
        label={`${title}, ${unit}. Arrow keys move along the time${onRange === undefined ? "" : "; with Shift they choose a range, Enter takes it"}.`}
        steps={steps} height={height} scale={(size) => linear(0, top, size, 0)} ticks={found.map((value) => ({ value, text: count(value) }))}
        marks={marks} cursor={cursor} say={say} {...(onRange === undefined ? {} : { onRange })}
      >
        {(x, y) => stacked(steps, layers.length, x, y).map((path, at) => <path key={at} class={`layer fill-${layers[at]?.tone}`} d={path} />)}
      </Plot>
      <Numbers title={title} unit={unit} layers={layers} steps={steps} withDay={withDay} />
    </figure>
  );
}

interface Shown {
  title: string;
  unit: string;
  layers: readonly Layer[];
  steps: readonly Step[];
  withDay: boolean;
}

/** Values under the crosshair, else the newest ones. */
function Legend({ title, unit, layers, steps, withDay, cursor }: Shown & { cursor: Signal<number | undefined> }) {
  const at = Math.min(cursor.value ?? steps.length - 1, steps.length - 1);
  const step = steps[at];
  return (
    <figcaption class="legend">
      <span><b>{title}</b> <span class="faint">{unit}</span></span>
      {[...layers.entries()].reverse().map(([index, layer]) => (
        <span key={layer.title} class="key">
          <svg width="12" height="12" aria-hidden="true"><rect class={`fill-${layer.tone}`} width="12" height="12" rx="2" /></svg>
          {layer.title} <b class="number">{step?.values == null ? "–" : rounded(step.values[index] ?? 0)}</b>
        </span>
      ))}
      <span class="faint times">{step === undefined ? "no data" : cursor.value === undefined ? "now" : `${timesOf(step, withDay)}${step.values === null ? ", no data" : ""}`}</span>
    </figcaption>
  );
}

/** The same numbers as a table, the newest first. */
function Numbers({ title, unit, layers, steps, withDay }: Shown) {
  const open = useSignal(false);
  return (
    <>
      <button type="button" class="quiet" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        {open.value ? "Hide the numbers" : "Show the numbers"}<span class="hidden-text"> of {title}</span>
      </button>
      {open.value && (
        <div class="table short" tabIndex={0} role="region" aria-label={`Numbers of ${title}`}>
          <table>
            <caption>{title}, {unit}</caption>
            <thead><tr><th scope="col">Time</th>{layers.map((layer) => <th key={layer.title} scope="col" class="number">{layer.title}</th>)}</tr></thead>
            <tbody>
              {[...steps].reverse().map((step) => (
                <tr key={step.from}>
                  <th scope="row">{timesOf(step, withDay)}</th>
                  {layers.map((layer, at) => <td key={layer.title} class="number">{step.values === null ? "–" : rounded(step.values[at] ?? 0)}</td>)}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

export function isLong(steps: readonly { from: number; to: number }[]): boolean {
  return (steps.at(-1)?.to ?? 0) - (steps[0]?.from ?? 0) > DAY / 2;
}

/** Rates below ten have a digit behind the point, if it says anything. */
function rounded(value: number): string {
  return value < 10 ? String(Math.round(value * 10) / 10) : count(Math.round(value));
}
