// What a chart shows in words: values under the crosshair, and all of them as a table.
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Table, type Column } from "../parts/table";
import { timesOf } from "./plot";
import { DAY } from "./scale";
import type { Step } from "./steps";

export interface Layer {
  /** The class of its colour. */
  tone: string;
  title: string;
}

export interface Described {
  title: string;
  unit: string;
  layers: readonly Layer[];
  steps: readonly Step[];
  format: (value: number) => string;
}

interface Props extends Described {
  cursor: Signal<number | undefined>;
  swatch: (layer: Layer) => ComponentChildren;
}

/** Values under the crosshair, else the newest ones. */
export function Legend({ title, unit, layers, steps, format, cursor, swatch }: Props) {
  const at = Math.min(cursor.value ?? steps.length - 1, steps.length - 1);
  const step = steps[at];
  return (
    <figcaption class="legend">
      <span>
        <b>{title}</b> <span class="faint">{unit}</span>
      </span>
      {[...layers.entries()].reverse().map(([index, layer]) => (
        <span key={layer.title} class="swatch">
          <svg width="12" height="12" aria-hidden="true">
            {swatch(layer)}
          </svg>
          {layer.title} <b class="number">{step?.values == null ? "–" : format(step.values[index] ?? 0)}</b>
        </span>
      ))}
      <span class="faint times">
        {step === undefined ? "no data" : cursor.value === undefined ? "" : timeText(step, steps)}
      </span>
    </figcaption>
  );
}

function timeText(step: Step, steps: readonly Step[]): string {
  return `${timesOf(step, isLong(steps))}${step.values === null ? ", no data" : ""}`;
}

/** One step as a sentence. */
export function sentence({ layers, steps, format }: Described, index: number): string {
  const step = steps[index];
  if (step === undefined) return "no data";
  const { values } = step;
  if (values === null) return timeText(step, steps);
  return `${timeText(step, steps)}: ${layers.map((layer, at) => `${layer.title} ${format(values[at] ?? 0)}`).join(", ")}`;
}

/** The same numbers as a table, the newest first, behind a button. */
export function Numbers({ title, unit, layers, steps, format }: Described) {
  const open = useSignal(false);
  return (
    <>
      <button type="button" class="quiet" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        {open.value ? "Hide the numbers" : "Show the numbers"}
        <span class="hidden-text"> of {title}</span>
      </button>
      {open.value && (
        <Table
          caption={`${title}, ${unit}`}
          scrolls={`Numbers of ${title}`}
          rows={steps.toReversed()}
          keyOf={(step) => String(step.from)}
          columns={[
            { title: "Time", cell: (step) => <span class="nowrap">{timesOf(step, isLong(steps))}</span> },
            ...layers.map(
              (layer, at): Column<Step> => ({
                title: layer.title,
                numeric: true,
                cell: ({ values }) => (values ? format(values[at] ?? 0) : "–"),
              }),
            ),
          ]}
        />
      )}
    </>
  );
}

/** Whether times need their day. */
export function isLong(steps: readonly { from: number; to: number }[]): boolean {
  return (steps.at(-1)?.to ?? 0) - (steps[0]?.from ?? 0) > DAY / 2;
}
