// What ended and what waited over time, for all names or for one; a dragged range stands in the address.
import type { OpsSeries, OpsSeriesAnswer } from "../api.gen";
import { AreaChart } from "../charts/area";
import type { Layer } from "../charts/legend";
import { depths, throughput } from "../charts/steps";
import { change, href, place } from "../router";
import { offers, zone } from "../store";
import { snapshot } from "../stream";
import { clock } from "../time";
import { Answered, useAnswer } from "./asking";

const ENDED: readonly Layer[] = [
  { tone: "completed", title: "completed" }, { tone: "retried", title: "retried" }, { tone: "failed", title: "failed" },
];
const WAITING: readonly Layer[] = [{ tone: "plain", title: "due" }, { tone: "busy", title: "running" }];

/** The charts of a series; with a range in the address, of that range. */
export function Throughput({ series, name }: { series: OpsSeries; name?: string }) {
  const range = rangeOf();
  if (!offers("trends")) return <p class="faint">No numbers over time are kept here: see Options.trends.</p>;
  return range === undefined ? <Charts series={series} name={name} isLive /> : <Zoomed range={range} name={name} />;
}

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

function Zoomed({ range, name }: { range: Range; name: string | undefined }) {
  const asked = useAnswer<OpsSeriesAnswer>("/trends", { ...range, name });
  return (
    <>
      <RangeNote range={range} name={name} />
      <Answered asked={asked}>{(series) => <Charts series={series} name={name} isLive={false} />}</Answered>
    </>
  );
}

/** Which range is shown, what ended in it, and the way back. */
export function RangeNote({ range, name }: { range: Range; name: string | undefined }) {
  const text = (at: string) => clock(Date.parse(at), zone.value, true);
  const jobs = href("/jobs", { name, updatedAtFrom: range.from, updatedAtTo: range.to });
  return (
    <p class="bar">
      <span>From {text(range.from)} to {text(range.to)}{zone.value === "utc" ? " UTC" : ""}</span>
      <a href={jobs}>Jobs of this time</a>
      <button type="button" onClick={() => change({ from: undefined, to: undefined })}>Show the whole time</button>
    </p>
  );
}

function Charts({ series, name, isLive }: { series: OpsSeries; name: string | undefined; isLive: boolean }) {
  const now = snapshot.value;
  const row = name === undefined ? now?.totals : now?.rows.get(name);
  const live = (keys: readonly string[]) =>
    isLive && row !== undefined ? keys.map((key) => Number((row as Record<string, unknown>)[key] ?? 0)) : undefined;
  return (
    <div class="charts">
      <AreaChart
        title="Throughput" unit="runs a minute" layers={ENDED} marks={series.marks} onRange={setRange}
        steps={throughput(series, live(["completedPerMin", "retriedPerMin", "failedPerMin"]))}
      />
      <AreaChart
        title="Waiting and running" unit="jobs, most at one moment" layers={WAITING} marks={series.marks} onRange={setRange} height={130}
        steps={depths(series, live(["due", "processing"]))}
      />
    </div>
  );
}
