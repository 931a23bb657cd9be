// What ended over time: completed as a quiet area, failed and retried as lines with an axis of their own, so that 8
// of 1,800 can be seen.
import { useSignal } from "@preact/signals";
import type { OpsSeries } from "../../api.gen";
import { EmptyChart, isEmpty } from "../../charts/area";
import { Legend, Numbers, sentence, type Described, type Layer } from "../../charts/legend";
import { Plot } from "../../charts/plot";
import { linear, ticks } from "../../charts/scale";
import { highest, lined, stacked, throughput, type Step } from "../../charts/steps";
import { count } from "../../time";

const LAYERS: readonly Layer[] = [
  { tone: "completed", title: "completed" },
  { tone: "retried", title: "retried" },
  { tone: "failed", title: "failed" },
];
const BAD = [1, 2];

interface Props {
  series: OpsSeries;
  /** The rates of now, in the order of the layers. */
  live: readonly number[] | undefined;
  onRange: (from: number, to: number) => void;
}

export function Flow({ series, live, onRange }: Props) {
  const cursor = useSignal<number>();
  const steps = throughput(series, live);
  if (isEmpty(steps)) return <EmptyChart title="Runs" unit="per minute" />;
  const done = steps.map((step): Step => ({ ...step, values: step.values?.slice(0, 1) ?? null }));
  const left = ticks(highest(done), 2);
  const right = ticks(Math.max(0, ...steps.flatMap(({ values }) => BAD.map((layer) => values?.[layer] ?? 0))), 2);
  const all: Described = { title: "Runs", unit: "per minute", layers: LAYERS, steps, format: rounded };
  return (
    <figure class="chart">
      <Legend
        {...all}
        cursor={cursor}
        swatch={({ tone }) =>
          tone === "completed" ? (
            <rect class="fill-completed" width="12" height="12" rx="2" />
          ) : (
            <path class={`line stroke-${tone}`} d="M0 6H12" />
          )
        }
      />
      <Plot
        label="Runs per minute"
        steps={steps}
        height={120}
        scale={(size) => linear(0, left.at(-1) as number, size, 0)}
        ticks={left.map((value) => ({ value, text: count(value) }))}
        right={{
          scale: (size) => linear(0, right.at(-1) as number, size, 0),
          ticks: right.map((value) => ({ value, text: count(value) })),
        }}
        marks={series.marks}
        cursor={cursor}
        say={(index) => sentence(all, index)}
        onRange={onRange}
      >
        {(x, y, _, bad) => (
          <>
            <path class="layer fill-completed" d={stacked(done, 1, x, y)[0]} />
            {bad !== undefined &&
              BAD.map((layer) => (
                <path key={layer} class={`line stroke-${LAYERS[layer]?.tone}`} d={lined(steps, layer, x, bad)} />
              ))}
          </>
        )}
      </Plot>
      <Numbers {...all} />
    </figure>
  );
}

/** Numbers below ten have a digit behind the point, if it says anything. */
function rounded(value: number): string {
  return value < 10 ? String(Math.round(value * 10) / 10) : count(Math.round(value));
}
