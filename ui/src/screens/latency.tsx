// How long jobs wait and run: percentiles and heat maps over time.
import type { OpsHeat, OpsLatency } from "../api.gen";
import { bounds, columnsAt, lineSteps, percentiles, within } from "../charts/heat";
import { HeatMap } from "../charts/heatmap";
import type { Layer } from "../charts/legend";
import { LineChart } from "../charts/lines";
import { latencyWays } from "../copynumbers";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Percentiles } from "../parts/percentiles";
import { RangeNote, rangeOf, setRange } from "../parts/throughput";
import { WindowChoice, windowOf } from "../parts/windows";
import { change, go, href, place, root } from "../router";
import { snapshot } from "../stream";
import { visible } from "../text";

const LINES: readonly Layer[] = [{ tone: "p50", title: "p50" }, { tone: "p90", title: "p90" }, { tone: "p95", title: "p95" }, { tone: "p99", title: "p99" }];

export function Latency() {
  const window = windowOf();
  const name = place.value.query.get("name") ?? undefined;
  const asked = useAnswer<OpsLatency>("/latency", new URLSearchParams({ window, ...(name === undefined ? {} : { name }) }));
  useFresh(asked.again, 15_000);
  const range = rangeOf();
  return (
    <section>
      <div class="bar"><h1>Latency</h1><span class="grow" /><NameChoice name={name} /><WindowChoice /><CopyAs ways={() => [latencyWays(name, window, root())]} /></div>
      <p class="faint">≈ means about: durations are counted in buckets, five for each power of ten, so a time may be off by half of itself.</p>
      {range !== undefined && <RangeNote range={range} name={name} />}
      <Answered asked={asked}>
        {(answer) => (
          <>
            <Part title="Wait" words="from due to start" heat={answer.wait} answer={answer} name={name} />
            <Part title="Run" words="from start to end" heat={answer.run} answer={answer} name={name} />
          </>
        )}
      </Answered>
    </section>
  );
}

function NameChoice({ name }: { name: string | undefined }) {
  const names = new Set([...(snapshot.value?.rows.keys() ?? []), ...(name === undefined ? [] : [name])]);
  return (
    <label class="choice">
      <span>Queue</span>
      <select class="names" value={name ?? ""} onChange={(event) => change({ name: event.currentTarget.value })}>
        <option value="">all</option>
        {[...names].sort().map((each) => <option key={each} value={each}>{visible(each)}</option>)}
      </select>
    </label>
  );
}

interface Given {
  title: string;
  words: string;
  heat: OpsHeat;
  answer: OpsLatency;
  name: string | undefined;
}

function Part({ title, words, heat, answer, name }: Given) {
  const range = rangeOf();
  const steps = within(answer.times, answer.stepMs, answer.to, range);
  const shown = columnsAt(heat, steps);
  const open = (step: { from: number; to: number }) =>
    go(href("/jobs", { name, updatedAtFrom: new Date(step.from).toISOString(), updatedAtTo: new Date(step.to).toISOString() }));
  if (shown.buckets.length === 0) return <section class="card"><h2>{title}</h2><p class="faint">No run ended in this time, or nothing was recorded.</p></section>;
  const domain = [bounds(shown.buckets[0] ?? 0)[0], bounds(shown.buckets.at(-1) ?? 0)[1]] as const;
  return (
    <>
      <Percentiles title={title} words={words} of={range === undefined ? heat.percentiles : percentiles(shown)} />
      <LineChart title={`${title} percentiles`} layers={LINES} steps={lineSteps(shown, steps)} domain={domain} onRange={setRange} />
      <HeatMap title={`${title} times`} heat={shown} steps={steps} domain={domain} onRange={setRange} onOpen={open} />
    </>
  );
}
