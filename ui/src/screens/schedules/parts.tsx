// What the list and the page of a schedule share.
import type { OpsOutcome, OpsRun, OpsSchedule } from "../../api.gen";
import { Status } from "../../parts/status";
import { When } from "../../parts/when";
import { now, zone } from "../../store";
import { plural, shortened, visible } from "../../text";
import { absolute, duration, elsewhere } from "../../time";
import { None } from "../../parts/none";

/** A schedule as people call it: by its key only where that is not the name. */
export function nameOf({ name, key }: OpsSchedule, most = 80): string {
  return visible(shortened(key == null || key === name ? name : `${name} · ${key}`, most));
}

/** When it runs, in words and as it was declared. */
export function Rule({ schedule: { cron, words, everyMs } }: { schedule: OpsSchedule }) {
  if (everyMs != null) return <>every {duration(everyMs)}</>;
  return (
    <>
      {words != null && (
        <>
          {visible(words)}
          <br />
        </>
      )}
      <code class="nowrap">{visible(shortened(cron ?? "–", 60))}</code>
    </>
  );
}

/** The next run: how soon, by its own clocks and by the reader's. */
export function NextRun({ schedule }: { schedule: OpsSchedule }) {
  const run = schedule.nextRuns[0];
  if (run === undefined) return <None />;
  return (
    <>
      <When at={run.at} />
      <br />
      <span class="faint">
        <Clocks run={run} timezone={schedule.timezone} />
      </span>
    </>
  );
}

/** A time by the clocks of the schedule, and below by the reader's where these differ. */
export function Clocks({ run, timezone }: { run: OpsRun; timezone: string | null | undefined }) {
  return (
    <>
      <span class="number-left">{localOf(run)}</span> {visible(timezone ?? "UTC")}
      {!isSameClock(run) && (
        <>
          <br />
          <span class="nowrap">{absolute(Date.parse(run.at), zone.value, now.value)}</span>
        </>
      )}
    </>
  );
}

/** Local time comes as "2026-11-18T02:30:00 Europe/Berlin"; the zone stands beside it. */
export function localOf({ local }: { local: string }): string {
  return elsewhere(local.split(" ")[0] ?? "", now.value);
}

function isSameClock({ at, local }: OpsRun): boolean {
  const moment = new Date(at);
  const shift = zone.value === "utc" ? 0 : moment.getTimezoneOffset() * 60_000;
  return local.startsWith(new Date(moment.getTime() - shift).toISOString().slice(0, 19));
}

/** The state as a list shows it. */
export function stateOf({ state, late, neverRan }: OpsSchedule): string {
  if (state !== "active") return visible(state);
  return late === true ? "late" : neverRan === true ? "never-ran" : state;
}

export function State({ schedule }: { schedule: OpsSchedule }) {
  const since = schedule.late === true ? schedule.nextRuns[0]?.at : schedule.pausedAt;
  return (
    <span>
      <Status display={stateOf(schedule)} />
      {since != null && (
        <>
          <br />
          <span class="faint">
            <When at={since} />
          </span>
        </>
      )}
    </span>
  );
}

/** How the last run ended, and when. */
export function LastRun({ schedule: { lastRun } }: { schedule: OpsSchedule }) {
  if (lastRun == null) return <None />;
  return (
    <span>
      {lastRun.outcome != null && <Status display={visible(lastRun.outcome)} />} <When brief at={lastRun.at} />
    </span>
  );
}

const HEIGHT = 30;
const LINE = 20;
const STEP = 7;

/** The last runs as bars, the longer the higher; what did not complete hangs below the line. */
export function OutcomeBars({ outcomes }: { outcomes: readonly OpsOutcome[] }) {
  if (outcomes.length === 0) return <None />;
  const longest = Math.max(1, ...outcomes.map((each) => each.durationMs ?? 0));
  const bad = outcomes.filter((each) => !isGood(each)).length;
  return (
    <svg
      class="bars"
      width={10 * STEP}
      height={HEIGHT}
      role="img"
      aria-label={`The last ${plural(outcomes.length, "run")}: ${bad === 0 ? "all well" : `${bad} not completed`}`}
    >
      <path class="axis" d={`M0 ${LINE + 0.5}H${10 * STEP}`} />
      {outcomes.map((each, at) => {
        const height = isGood(each) ? 3 + ((each.durationMs ?? 0) / longest) * (LINE - 4) : HEIGHT - LINE - 1;
        return (
          <rect
            key={each.at}
            class={`fill-${each.outcome}`}
            x={at * STEP}
            y={isGood(each) ? LINE - height : LINE + 1}
            width={STEP - 2}
            height={height}
          >
            <title>{`${each.outcome}, ${absolute(Date.parse(each.at), zone.value, now.value)}${each.durationMs == null ? "" : `, ${duration(each.durationMs)}`}`}</title>
          </rect>
        );
      })}
    </svg>
  );
}

function isGood({ outcome }: OpsOutcome): boolean {
  return outcome === "completed" || outcome === "stored";
}
