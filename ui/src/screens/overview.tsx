// The first screen: what is wrong, what fails, which queues are in trouble, and what moves.
import { useSignal } from "@preact/signals";
import { at } from "../api";
import type { OpsGroup, OpsOverview, OpsSeries } from "../api.gen";
import { first, total } from "../charts/steps";
import { Answered, useAnswer } from "../parts/asking";
import { Failing } from "../parts/failing";
import { FirstSteps } from "../parts/firststeps";
import { useFresh } from "../parts/fresh";
import { RunningNow } from "../parts/running";
import { Tiles, type Tile } from "../parts/tiles";
import { Depths, liveOf, rangeOf, setRange, Throughput, type Range } from "../parts/throughput";
import { lastOf, WindowChoice, windowOf, type Window } from "../parts/windows";
import { href } from "../router";
import { whole, type Snapshot } from "../snapshot";
import { may } from "../store";
import { snapshot } from "../stream";
import { plural, shortened, visible } from "../text";
import { count } from "../time";
import type { BulkDialog } from "./jobs/bulkdialog";
import { Flow } from "./overview/flow";
import { Problems } from "./overview/problems";
import { Queues } from "./overview/queues";
import "./overview/overview.css";

// The newest minute is live between two answers. What is fetched less often is longer steps.
const EVERY: Record<Window, number> = {
  "15m": 5_000,
  "1h": 5_000,
  "6h": 15_000,
  "24h": 30_000,
  "7d": 60_000,
  "30d": 60_000,
};
const RECENT_EVERY = 30_000;

export function Overview() {
  const window = windowOf();
  const asked = useAnswer(at("/overview", { window }));
  useFresh(asked.again, EVERY[window]);
  return (
    <section class="overview">
      <div class="bar">
        <h1>Overview</h1>
        <span class="grow" />
        <WindowChoice />
      </div>
      <Answered asked={asked}>{(answer) => <Shown answer={answer} window={window} again={asked.again} />}</Answered>
    </section>
  );
}

interface ShownProps {
  answer: OpsOverview;
  window: Window;
  again: () => void;
}

function Shown({ answer, window, again }: ShownProps) {
  const queues = useAnswer(at("/queues"));
  useFresh(queues.again, RECENT_EVERY);
  const now = snapshot.value ?? whole(answer.snapshot);
  const { recent = NOTHING, outlooks = NOTHING } = queues.answer ?? {};
  const range = rangeOf();
  const isEmpty = now.totals.stored === 0 && (now.totals.due ?? 0) === 0;
  if (isEmpty) return <FirstSteps />;
  return (
    <>
      <Problems found={answer.problems} queues={now.rows.size} done={again} />
      <div class="columns">
        {range === undefined ? (
          <Failing groups={answer.groups?.slice(0, GROUPS)} window={window} more={(group) => <Retry group={group} />} />
        ) : (
          <FailedThen range={range} window={window} />
        )}
        <Queues rows={[...now.rows.values()]} outlooks={outlooks} />
      </div>
      <Tiles tiles={tilesOf(now.totals, answer.series, window)} />
      <Throughput series={answer.series} draw={drawn} />
      {answer.running.some((job) => job.claimedBy != null && !now.instances.has(job.claimedBy)) && (
        <p class="faint">Instances that report nothing (TypeScript, or older) are not counted.</p>
      )}
      <RunningNow jobs={answer.running} recent={recent} />
    </>
  );
}

function drawn(series: OpsSeries, isLive: boolean) {
  const rates = isLive ? liveOf(["completedPerMin", "retriedPerMin", "failedPerMin"]) : undefined;
  return (
    <div class="pair">
      <Flow series={series} live={rates} onRange={setRange} />
      <Depths series={series} isLive={isLive} height={120} />
    </div>
  );
}

/** Retry all jobs of a group; the dialog comes when it is wanted. */
function Retry({ group }: { group: OpsGroup }) {
  const dialog = useSignal<typeof BulkDialog>();
  if (!may("retryBulk")) return null;
  const open = () => void import("./jobs/bulkdialog").then((file) => (dialog.value = file.BulkDialog));
  const Dialog = dialog.value;
  return (
    <>
      <button type="button" onClick={open}>
        Retry…
        <span class="hidden-text">
          {" "}
          {plural(group.count, "job")} of {visible(shortened(group.sentence, 80))}
        </span>
      </button>
      {Dialog && (
        <Dialog
          action="retry"
          target={{ filter: { failed: group.fingerprint } }}
          close={() => (dialog.value = undefined)}
        />
      )}
    </>
  );
}

// A failing group and a queue more would push the charts below the window.
const GROUPS = 4;
const NOTHING = {};

function FailedThen({ range, window }: { range: Range; window: Window }) {
  const asked = useAnswer(at("/failures", { ...range }));
  return (
    <Answered asked={asked}>
      {(answer) => <Failing groups={answer.groups.slice(0, GROUPS)} window={window} range={range} />}
    </Answered>
  );
}

const TILES = [
  ["due", "due", { status: "pending", due: "now" }, "warn"],
  ["later", "later", { status: "pending", due: "later" }, undefined],
  ["running", "running", { status: "processing" }, "busy"],
  ["failed", "failed now", { status: "failed" }, "bad"],
  ["cancelled", "cancelled", { status: "cancelled" }, undefined],
] as const;

function tilesOf(totals: Snapshot["totals"], series: OpsSeries, window: Window): Tile[] {
  return TILES.map(([key, word, query, tone]) => ({
    word,
    value: totals[key] == null ? "–" : count(totals[key]),
    to: href("/jobs", query),
    tone: totals[key] ? tone : undefined,
    more: isEnd(key) ? (
      `${plural(total(series, key), ENDS[key])} in ${lastOf(window)}`
    ) : key === "running" ? (
      slotsText(totals)
    ) : (
      <>
        {changeText(key, totals[key], series)}
        <span class="hidden-text"> in {lastOf(window)}</span>
        {key === "later" && !!totals.parked && `, ${count(totals.parked)} with no time yet`}
      </>
    ),
  }));
}

/** "of 24 slots, 49 claimed ahead". */
function slotsText({ slots, claimedAhead }: Snapshot["totals"]): string {
  return `of ${plural(slots ?? 0, "slot")}${claimedAhead ? `, ${count(claimedAhead)} claimed ahead` : ""}`;
}

const ENDS = { failed: "failure", cancelled: "cancellation" } as const;

/** What ended badly is retried and deleted, too: how often it happened is no change of how many are left. */
const isEnd = (key: string): key is keyof typeof ENDS => key in ENDS;

/** How the number changed in the window: what waits now against what waited then. */
function changeText(key: string, now: number | null | undefined, series: OpsSeries): string {
  const before = first(series, key);
  if (now == null || before === undefined) return "no data before";
  const change = now - before;
  return change === 0 ? "no change" : `${change > 0 ? "+" : "−"}${count(Math.abs(change))}`;
}
