import { plural } from "../text";

interface Bar {
  value: number;
  /** The class of its colour: completed, failed, … */
  tone?: string;
  title?: string;
}

const HEIGHT = 28;
const WIDTH = 5;

/** A row of little bars from a zero line. The label says in words what they show. */
export function Bars({ bars, label }: { bars: readonly Bar[]; label: string }) {
  const top = Math.max(1, ...bars.map((bar) => bar.value));
  return (
    <svg class="bars" width={bars.length * WIDTH} height={HEIGHT} role="img" aria-label={label}>
      <path class="axis" d={`M0 ${HEIGHT - 0.5}H${bars.length * WIDTH}`} />
      {bars.map((bar, at) => {
        // What is not nothing can be seen.
        const height = bar.value === 0 ? 0 : Math.max(2, (bar.value / top) * (HEIGHT - 1));
        return (
          <rect
            key={at}
            class={`fill-${bar.tone ?? "plain"}`}
            x={at * WIDTH}
            y={HEIGHT - 1 - height}
            width={WIDTH - 1}
            height={height}
          >
            {bar.title !== undefined && <title>{bar.title}</title>}
          </rect>
        );
      })}
    </svg>
  );
}

/** A trend of counts, such as the 24 bars of a group of failures. */
export function TrendBars({ counts, tone, what }: { counts: readonly number[]; tone: string; what: string }) {
  const all = counts.reduce((sum, each) => sum + each, 0);
  return (
    <Bars
      bars={counts.map((value) => ({ value, tone }))}
      label={`${plural(all, what)}, most in one of ${counts.length} steps: ${Math.max(0, ...counts)}`}
    />
  );
}
