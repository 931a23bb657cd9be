// How long jobs wait and run: percentiles and heat maps over time.
import { at } from "../api";
import type { OpsHeat, OpsLatency } from "../api.gen";
import { bounds, lineSteps, stepsOf, wholeBounds } from "../charts/heat";
import { HeatMap } from "../charts/heatmap";
import type { Layer } from "../charts/legend";
import { LineChart } from "../charts/lines";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { NameField } from "../parts/namefield";
import { Percentiles } from "../parts/percentiles";
import { RangeNote, rangeOf, setRange } from "../parts/throughput";
import { WindowChoice, windowOf, type Window } from "../parts/windows";
import { go, href, place } from "../router";
import { now } from "../store";
import { Kinds } from "./latency/kinds";

const LINES: readonly Layer[] = [
  { tone: "p50", title: "p50" },
  { tone: "p90", title: "p90" },
  { tone: "p95", title: "p95" },
  { tone: "p99", title: "p99" },
];

export function Latency() {
  const window = windowOf();
  const range = rangeOf();
  const name = place.value.query.get("name") ?? undefined;
  const asked = useAnswer(at("/latency", { name, ...(range ?? { window }) }));
  useFresh(asked.again, 15_000);
  return (
    <section>
      <div class="bar">
        <h1>Latency</h1>
        <span class="grow" />
        <NameField />
        <WindowChoice />
        <a class="button" href={slowest(name, range?.from ?? since(window), range?.to)}>
          Slowest jobs
        </a>
        <CopyAs ways={() => [{ title: "These numbers", path: asked.address ?? "" }]} />
      </div>
      <p class="faint">≈ means about: durations are counted in buckets.</p>
      {range !== undefined && <RangeNote range={range} name={name} />}
      <Answered asked={asked}>
        {(answer) => (
          <>
            <Kinds name={name} range={range} window={window} />
            <Part by="waited" heat={answer.wait} answer={answer} name={name} />
            <Part by="ran" heat={answer.run} answer={answer} name={name} />
          </>
        )}
      </Answered>
    </section>
  );
}

const MINUTE = 60_000;
const SPANS: Record<Window, number> = {
  "15m": 15 * MINUTE,
  "1h": 60 * MINUTE,
  "6h": 360 * MINUTE,
  "24h": 1440 * MINUTE,
  "7d": 7 * 1440 * MINUTE,
  "30d": 30 * 1440 * MINUTE,
};

/** The list of the jobs that ran longest; from the last whole minute on, so that the address stays the same. */
function slowest(name: string | undefined, from: string, to?: string): string {
  return href("/jobs", { name, updatedAtFrom: from, updatedAtTo: to, sort: "ran", order: "desc" });
}

function since(window: Window): string {
  return new Date(Math.floor((now.value - SPANS[window]) / MINUTE) * MINUTE).toISOString();
}

interface Props {
  by: "ran" | "waited";
  heat: OpsHeat;
  answer: OpsLatency;
  name: string | undefined;
}

function Part({ by, heat, answer, name }: Props) {
  const [title, words] = by === "ran" ? ["Run", "from start to end"] : ["Wait", "from due to start"];
  const steps = stepsOf(answer.times, answer.stepMs, answer.to);
  const open = (step: { from: number; to: number }, begin: number) => {
    const [least, below] = wholeBounds(begin);
    go(
      href("/jobs", {
        name,
        updatedAtFrom: new Date(step.from).toISOString(),
        updatedAtTo: new Date(step.to - 1).toISOString(), // the last moment, as the API takes it
        [`${by}AtLeastMs`]: least,
        [`${by}LessThanMs`]: below,
        sort: by,
        order: "desc",
      }),
    );
  };
  if (heat.buckets.length === 0)
    return (
      <section class="card">
        <h2>{title}</h2>
        <p class="faint">No run ended in this time.</p>
      </section>
    );
  const domain = [bounds(heat.buckets[0] ?? 0)[0], bounds(heat.buckets.at(-1) ?? 0)[1]] as const;
  return (
    <>
      <Percentiles title={title} words={words} of={heat.percentiles} />
      <LineChart
        title={`${title} percentiles`}
        layers={LINES}
        steps={lineSteps(heat, steps)}
        domain={domain}
        onRange={setRange}
      />
      <HeatMap title={`${title} times`} heat={heat} steps={steps} domain={domain} onRange={setRange} onOpen={open} />
    </>
  );
}
