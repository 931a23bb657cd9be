// The first screen: what is wrong, what moves, what waits, what fails, what runs.
import type { OpsGroupList, OpsOverview, OpsQueueList, OpsSeries } from "../api.gen";
import { first, total } from "../charts/steps";
import { Answered, useAnswer } from "../parts/asking";
import { Failing } from "../parts/failing";
import { FirstSteps } from "../parts/firststeps";
import { useFresh } from "../parts/fresh";
import { QueueTable } from "../parts/queues";
import { RunningNow } from "../parts/running";
import { Tiles, type Tile } from "../parts/tiles";
import { rangeOf, Throughput, type Range } from "../parts/throughput";
import { Warnings } from "../parts/warnings";
import { lastOf, WindowChoice, windowOf, type Window } from "../parts/windows";
import { href } from "../router";
import { whole, type Snapshot, type Wire } from "../snapshot";
import { snapshot } from "../stream";
import { count } from "../time";

// The newest minute is live between two answers. What is fetched less often is longer steps.
const EVERY: Record<Window, number> = { "15m": 5_000, "1h": 5_000, "6h": 15_000, "24h": 30_000, "7d": 60_000, "30d": 60_000 };
const RECENT_EVERY = 30_000;

export function Overview() {
  const window = windowOf();
  const asked = useAnswer<OpsOverview>("/overview", { window });
  useFresh(asked.again, EVERY[window]);
  return (
    <section>
      <div class="bar"><h1>Overview</h1><span class="grow" /><WindowChoice /></div>
      <Answered asked={asked}>{(answer) => <Shown answer={answer} window={window} />}</Answered>
    </section>
  );
}

function Shown({ answer, window }: { answer: OpsOverview; window: Window }) {
  const queues = useAnswer<OpsQueueList>("/queues");
  useFresh(queues.again, RECENT_EVERY);
  const now = snapshot.value ?? whole(answer.snapshot as unknown as Wire);
  const recent = queues.answer?.recent ?? NOTHING;
  const range = rangeOf();
  const isEmpty = now.totals["stored"] === 0 && (now.totals["due"] ?? 0) === 0;
  return (
    <>
      <Warnings found={answer.warnings} />
      {isEmpty && <FirstSteps />}
      <Tiles tiles={tilesOf(now.totals, answer.series, window)} />
      {!isEmpty && <Throughput series={answer.series} />}
      {answer.running.some((job) => job.claimedBy != null && !now.instances.has(job.claimedBy)) && (
        <p class="faint">Runs of instances that report nothing (TypeScript, or older) are not counted above.</p>
      )}
      <h2 class="hidden-text">Queues</h2>
      <QueueTable rows={[...now.rows.values()]} recent={recent} />
      <div class="columns">
        {range === undefined ? <Failing groups={answer.groups} window={window} /> : <FailedThen range={range} window={window} />}
        <RunningNow jobs={answer.running} recent={recent} />
      </div>
    </>
  );
}

const NOTHING = {};

function FailedThen({ range, window }: { range: Range; window: Window }) {
  const asked = useAnswer<OpsGroupList>("/failures", { ...range });
  return <Answered asked={asked}>{(answer) => <Failing groups={answer.groups.slice(0, 5)} window={window} range={range} />}</Answered>;
}

const TILES = [
  ["due", "due", { status: "pending", due: "now" }],
  ["later", "later", { status: "pending", due: "later" }],
  ["processing", "running", { status: "processing" }],
  ["failed", "failed", { status: "failed" }],
  ["cancelled", "cancelled", { status: "cancelled" }],
] as const;

function tilesOf(totals: Snapshot["totals"], series: OpsSeries, window: Window): Tile[] {
  return TILES.map(([key, word, query]) => ({
    word, value: totals[key] == null ? "–" : count(totals[key]), to: href("/jobs", query),
    more: isEnd(key)
      ? `${count(total(series, key))} in ${lastOf(window)}`
      : <>{changeText(key, totals[key], series)}<span class="hidden-text"> in {lastOf(window)}</span></>,
  }));
}

/** What ended badly is retried and deleted, too: how often it happened is no change of how many are left. */
const isEnd = (key: string) => key === "failed" || key === "cancelled";

/** How the number changed in the window: what waits now against what waited then. */
function changeText(key: string, now: number | null | undefined, series: OpsSeries): string {
  const before = first(series, key);
  if (now == null || before === undefined) return "no data before";
  const change = now - before;
  return change === 0 ? "no change" : `${change > 0 ? "+" : "−"}${count(Math.abs(change))}`;
}
