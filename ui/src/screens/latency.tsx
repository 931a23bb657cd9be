// How long jobs wait and run: percentiles and heat maps over time.
import type { OpsHeat, OpsLatency } from "../api.gen";
import { bounds, lineSteps, stepsOf } from "../charts/heat";
import { HeatMap } from "../charts/heatmap";
import type { Layer } from "../charts/legend";
import { LineChart } from "../charts/lines";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { NameField } from "../parts/namefield";
import { Percentiles } from "../parts/percentiles";
import { RangeNote, rangeOf, setRange } from "../parts/throughput";
import { WindowChoice, windowOf } from "../parts/windows";
import { go, href, place } from "../router";

const LINES: readonly Layer[] = [{ tone: "p50", title: "p50" }, { tone: "p90", title: "p90" }, { tone: "p95", title: "p95" }, { tone: "p99", title: "p99" }];

export function Latency() {
  const window = windowOf();
  const range = rangeOf();
  const name = place.value.query.get("name") ?? undefined;
  const asked = useAnswer<OpsLatency>("/latency", { name, ...(range ?? { window }) });
  useFresh(asked.again, 15_000);
  return (
    <section>
      <div class="bar"><h1>Latency</h1><span class="grow" /><NameField /><WindowChoice /><CopyAs ways={() => [{ title: "These numbers", path: asked.address ?? "" }]} /></div>
      <p class="faint">≈ means about: times are counted in five buckets for each power of ten.</p>
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

interface Given {
  title: string;
  words: string;
  heat: OpsHeat;
  answer: OpsLatency;
  name: string | undefined;
}

function Part({ title, words, heat, answer, name }: Given) {
  const steps = stepsOf(answer.times, answer.stepMs, answer.to);
  const open = (step: { from: number; to: number }) =>
    go(href("/jobs", { name, updatedAtFrom: new Date(step.from).toISOString(), updatedAtTo: new Date(step.to).toISOString() }));
  if (heat.buckets.length === 0) return <section class="card"><h2>{title}</h2><p class="faint">No run ended in this time.</p></section>;
  const domain = [bounds(heat.buckets[0] ?? 0)[0], bounds(heat.buckets.at(-1) ?? 0)[1]] as const;
  return (
    <>
      <Percentiles title={title} words={words} of={heat.percentiles} />
      <LineChart title={`${title} percentiles`} layers={LINES} steps={lineSteps(heat, steps)} domain={domain} onRange={setRange} />
      <HeatMap title={`${title} times`} heat={heat} steps={steps} domain={domain} onRange={setRange} onOpen={open} />
    </>
  );
}
