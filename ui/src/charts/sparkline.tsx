const WIDTH = 60;
const HEIGHT = 18;

/** A small line from a zero baseline. The number stands beside it, so it is hidden from screen readers. */
export function Sparkline({ values }: { values: readonly number[] }) {
  if (values.length < 2) return <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true" />;
  const top = Math.max(1, ...values);
  const step = WIDTH / (values.length - 1);
  const points = values.map(
    (value, at) => `${(at * step).toFixed(1)} ${(HEIGHT - 1 - (value / top) * (HEIGHT - 2)).toFixed(1)}`,
  );
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true">
      <path class="spark-area" d={`M0 ${HEIGHT - 1}L${points.join("L")}V${HEIGHT - 1}Z`} />
      <path class="spark-line" d={`M${points.join("L")}`} />
    </svg>
  );
}
