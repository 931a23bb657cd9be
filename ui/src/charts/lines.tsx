import { useSignal } from "@preact/signals";
import { duration } from "../time";
import { Legend, Numbers, sentence, type Described, type Layer } from "./legend";
import { Plot } from "./plot";
import { durationTicks, logarithmic, type Scale } from "./scale";
import { stretches, type Step } from "./steps";

interface Given {
  title: string;
  layers: readonly Layer[];
  steps: readonly Step[];
  /** The shortest and the longest duration on the axis. */
  domain: readonly [number, number];
  onRange: (from: number, to: number) => void;
}

/** Durations over time on a logarithmic axis. Lines differ by their dashes, not by colour alone. */
export function LineChart({ title, layers, steps, domain: [low, high], onRange }: Given) {
  const cursor = useSignal<number>();
  const all: Described = { title, unit: "logarithmic axis", layers, steps, format: (value) => `≈ ${duration(value)}` };
  return (
    <figure class="chart">
      <Legend {...all} cursor={cursor} swatch={(layer) => <path class={`line line-${layer.tone}`} d="M0 6H12" />} />
      <Plot
        label={title}
        steps={steps} height={190} scale={(size) => logarithmic(low, high, size, 0)} ticks={durationTicks(low, high).map((value) => ({ value, text: duration(value) }))}
        cursor={cursor} say={(index) => sentence(all, index)} onRange={onRange}
      >
        {(x, y) => layers.map((layer, at) => <path key={layer.title} class={`line line-${layer.tone}`} d={path(steps, at, x, y)} />)}
      </Plot>
      <Numbers {...all} />
    </figure>
  );
}

/** Each step is a level piece, as wide as its time; gaps stay empty. */
function path(steps: readonly Step[], layer: number, x: Scale, y: Scale): string {
  const piece = ({ from, to, values }: Step) => `L${x(from).toFixed(1)} ${y(values?.[layer] ?? 0).toFixed(1)}H${x(to).toFixed(1)}`;
  return stretches(steps).map((stretch) => `M${stretch.map(piece).join("").slice(1)}`).join("");
}
