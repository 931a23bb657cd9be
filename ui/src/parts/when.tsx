import { now, zone } from "../store";
import { absolute, duration, exact, relative } from "../time";
import { None } from "./none";

interface Props {
  at: string | null | undefined;
  as?: "relative" | "absolute";
  /** In its largest unit, where there is little room: "5 min ago". */
  brief?: boolean;
}

/** A moment: how long ago, and on hover and focus exactly when. */
export function When({ at, as = "relative", brief }: Props) {
  if (at === null || at === undefined) return <None />;
  const moment = Date.parse(at);
  const text = { relative: relative(moment, now.value), absolute: absolute(moment, zone.value, now.value) };
  const other = as === "relative" ? exact(moment, zone.value) : `${exact(moment, zone.value)}, ${text.relative}`;
  return (
    <time dateTime={at} title={other}>
      {brief ? text[as].replace(/(\d \D+?) \d+ \w+/, "$1") : text[as]}
    </time>
  );
}

/** A duration in milliseconds. */
export function Took({ ms }: { ms: number | null | undefined }) {
  return ms === null || ms === undefined ? <None /> : <span class="number">{duration(ms)}</span>;
}
