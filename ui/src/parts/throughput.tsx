// What ended and what waited over time, for all names or for one; a dragged range stands in the address.
import type { ComponentChildren } from "preact";
import { at } from "../api";
import type { OpsSeries } from "../api.gen";
import { AreaChart } from "../charts/area";
import type { Layer } from "../charts/legend";
import { depths, throughput } from "../charts/steps";
import { change, href, place } from "../router";
import { offers, zone } from "../store";
import { snapshot } from "../stream";
import { clock } from "../time";
import { Answered, useAnswer } from "./asking";

const ENDED: readonly Layer[] = [
  { tone: "completed", title: "completed" },
  { tone: "retried", title: "retried" },
  { tone: "failed", title: "failed" },
];
const WAITING: readonly Layer[] = [
  { tone: "due", title: "due" },
  { tone: "running", title: "running or claimed" },
];

interface Props {
  series: OpsSeries;
  name?: string;
  /** Draws a series; *isLive* if its last minute is not over. */
  draw?: (series: OpsSeries, isLive: boolean) => ComponentChildren;
}

/** The charts of a series; with a range in the address, of that range. */
export function Throughput({ series, name, draw = drawnFor(name) }: Props) {
  const range = rangeOf();
  if (!offers("trends")) return <p class="faint">Trends are off: see Options.trends.</p>;
  return range === undefined ? draw(series, true) : <Zoomed range={range} name={name} draw={draw} />;
}

const drawnFor = (name: string | undefined) => (series: OpsSeries, isLive: boolean) => (
  <Charts series={series} name={name} isLive={isLive} />
);

export interface Range {
  from: string;
  to: string;
}

/** The range in the address, if there is one that makes sense. */
export function rangeOf(): Range | undefined {
  const [from, to] = [place.value.query.get("from"), place.value.query.get("to")];
  return from !== null && to !== null && Date.parse(from) < Date.parse(to) ? { from, to } : undefined;
}

export function setRange(from: number, to: number): void {
  change({ from: new Date(from).toISOString(), to: new Date(to).toISOString() });
}

interface ZoomedProps {
  range: Range;
  name: string | undefined;
  draw: NonNullable<Props["draw"]>;
}

function Zoomed({ range, name, draw }: ZoomedProps) {
  const asked = useAnswer(at("/trends", { ...range, name }));
  return (
    <>
      <RangeNote range={range} name={name} />
      <Answered asked={asked}>{(series) => draw(series, false)}</Answered>
    </>
  );
}

/** Which range is shown, what ended in it, and the way back. */
export function RangeNote({ range, name }: { range: Range; name: string | undefined }) {
  const text = (at: string) => clock(Date.parse(at), zone.value, true);
  const jobs = href("/jobs", { name, updatedAtFrom: range.from, updatedAtTo: range.to });
  return (
    <p class="bar">
      <span>
        From {text(range.from)} to {text(range.to)}
        {zone.value === "utc" ? " UTC" : ""}
      </span>
      <a href={jobs}>Jobs from this time</a>
      <button type="button" onClick={() => change({ from: undefined, to: undefined })}>
        Show the whole time
      </button>
    </p>
  );
}

function Charts({ series, name, isLive }: { series: OpsSeries; name: string | undefined; isLive: boolean }) {
  const live = (keys: readonly string[]) => (isLive ? liveOf(keys, name) : undefined);
  return (
    <div class="charts">
      <AreaChart
        title="Throughput"
        empty="No run ended in this time."
        unit="runs a minute"
        layers={ENDED}
        marks={series.marks}
        onRange={setRange}
        steps={throughput(series, live(["completedPerMin", "retriedPerMin", "failedPerMin"]))}
      />
      <Depths series={series} name={name} isLive={isLive} height={130} />
    </div>
  );
}

/** What waited and what ran. */
export function Depths({ series, name, isLive, height }: DepthsProps) {
  return (
    <AreaChart
      title="Waiting and running"
      empty="No job waited or ran in this time."
      unit="jobs, most at one moment"
      layers={WAITING}
      marks={series.marks}
      onRange={setRange}
      height={height}
      steps={depths(series, isLive ? liveOf(["due", "processing"], name) : undefined)}
    />
  );
}

interface DepthsProps {
  series: OpsSeries;
  name?: string | undefined;
  isLive: boolean;
  height: number;
}

/** The numbers of now, of all names or of one. */
export function liveOf(keys: readonly string[], name?: string): number[] | undefined {
  const row = name === undefined ? snapshot.value?.totals : snapshot.value?.rows.get(name);
  return row && keys.map((key) => Number((row as Record<string, unknown>)[key] ?? 0));
}
