import { useSignal } from "@preact/signals";
import { duration } from "../time";
import { Legend, Numbers, sentence, type Described, type Layer } from "./legend";
import { Plot } from "./plot";
import { durationTicks, logarithmic } from "./scale";
import { lined, type Step } from "./steps";

interface Props {
  title: string;
  layers: readonly Layer[];
  steps: readonly Step[];
  /** The shortest and the longest duration on the axis. */
  domain: readonly [number, number];
  onRange: (from: number, to: number) => void;
}

/** Durations over time on a logarithmic axis. Lines differ by their dashes, not by colour alone. */
export function LineChart({ title, layers, steps, domain: [low, high], onRange }: Props) {
  const cursor = useSignal<number>();
  const all: Described = { title, unit: "logarithmic axis", layers, steps, format: (value) => `≈ ${duration(value)}` };
  return (
    <figure class="chart">
      <Legend {...all} cursor={cursor} swatch={(layer) => <path class={`line line-${layer.tone}`} d="M0 6H12" />} />
      <Plot
        label={title}
        steps={steps}
        height={190}
        scale={(size) => logarithmic(low, high, size, 0)}
        ticks={durationTicks(low, high).map((value) => ({ value, text: duration(value) }))}
        cursor={cursor}
        say={(index) => sentence(all, index)}
        onRange={onRange}
      >
        {(x, y) =>
          layers.map((layer, at) => (
            <path key={layer.title} class={`line line-${layer.tone}`} d={lined(steps, at, x, y)} />
          ))
        }
      </Plot>
      <Numbers {...all} />
    </figure>
  );
}
