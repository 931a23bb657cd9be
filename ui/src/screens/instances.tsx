// Who processes jobs: alive, stopping, silent or stopped, and what each runs.
import { useMemo } from "preact/hooks";
import { at } from "../api";
import type { OpsInstance, OpsInstanceList } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { Icon } from "../parts/icon";
import { Slots } from "../parts/queues";
import { Status } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { When } from "../parts/when";
import { tally } from "../releases";
import { change, place } from "../router";
import { plural, shortId, visible } from "../text";
import { Heard, hostOf, instanceHref, RunningJob, short, stateOf } from "./instances/parts";
import { Choice } from "../parts/choice";

const STATES = ["", "alive", "stopping", "silent", "stopped"];

export function Instances() {
  const asked = useAnswer(at("/instances"));
  useFresh(asked.again, 2_000);
  return (
    <section>
      <div class="bar">
        <h1>Instances</h1>
        <span class="grow" />
        <Choice
          label="Show"
          value={place.value.query.get("state") ?? ""}
          options={STATES.map((each) => [each, each || "all"])}
          onChange={(state) => change({ state })}
        />
        <CopyAs ways={() => [{ title: "These instances", path: at("/instances") }]} />
      </div>
      <Answered asked={asked}>{(answer) => <Shown answer={answer} />}</Answered>
    </section>
  );
}

function Shown({ answer: { instances, serverTime } }: { answer: OpsInstanceList }) {
  const state = place.value.query.get("state");
  const by = place.value.query.get("sort") === "longest" ? "longest" : "state";
  const found = state === null ? instances : instances.filter((each) => stateOf(each) === state);
  const rows = by === "longest" ? found.toSorted((a, b) => longest(b) - longest(a)) : found;
  const columns = useMemo(() => columnsOf(serverTime), [serverTime]);
  if (instances.length === 0)
    return (
      <p class="empty">
        No instance in the last 24 hours. Start one with <code>monque worker MODULE:ATTR</code>.
      </p>
    );
  return (
    <>
      <Mixed what="releases" values={instances.filter(isAlive).map((each) => each.release)} />
      <Mixed what="versions of Monque" values={instances.filter(isAlive).map((each) => each.version)} />
      <Table
        caption={captionOf(instances)}
        columns={columns}
        rows={rows}
        keyOf={(row) => row.id}
        empty="Nothing matches."
        order={{ by, down: by === "longest" }}
        onOrder={(order) => change({ sort: order.by === "longest" ? "longest" : undefined }, "replace")}
      />
    </>
  );
}

/** How long the longest of its jobs has run. */
function longest({ running }: OpsInstance): number {
  return Math.max(-1, ...running.map((job) => job.sinceMs ?? 0));
}

function isAlive({ alive, reported }: OpsInstance): boolean {
  return alive && reported;
}

/** During a deployment that is as it should be; a day later it is not. */
function Mixed({ what, values }: { what: string; values: readonly (string | null | undefined)[] }) {
  const found = tally(values);
  if (found.length < 2) return null;
  return (
    <p class="banner warn">
      <Icon name="silent" />{" "}
      <b>
        {found.length} {what} run side by side:
      </b>{" "}
      {found.map(([value, count]) => `${short(value)} (${plural(count, "instance")})`).join(", ")}.
    </p>
  );
}

function captionOf(instances: readonly OpsInstance[]): string {
  const states = tally(instances.map(stateOf));
  return `${plural(instances.length, "instance")}: ${states.map(([state, count]) => `${count} ${state}`).join(", ")}`;
}

const SHOWN_JOBS = 3;

function columnsOf(at: string): Column<OpsInstance>[] {
  return [
    {
      title: "Instance",
      sort: "state",
      cell: (row) => (
        <span>
          <a class="mono" href={instanceHref(row.id)} title={visible(row.id)}>
            {shortId(row.id)}
          </a>
          <br />
          <span class="faint" title={hostOf(row)}>
            {hostOf(row)}
          </span>
        </span>
      ),
    },
    { title: "State", cell: (row) => <Status display={stateOf(row)} /> },
    {
      title: "Last heartbeat",
      cell: (row) => (
        <span>
          <Heard instance={row} />
          <br />
          <span class="faint nowrap">
            started <When brief at={row.startedAt} />
          </span>
        </span>
      ),
    },
    {
      title: "Release",
      priority: 2,
      cell: (row) => (
        <span>
          {short(row.release)}
          <br />
          <span class="faint room">{short(row.version)}</span>
        </span>
      ),
    },
    {
      title: "Busy / slots",
      numeric: true,
      cell: (row) =>
        row.slots == null ? (
          "–"
        ) : row.state === "silent" ? (
          <span class="faint">last known: {plural(row.busy ?? 0, "run")}</span>
        ) : (
          <Slots busy={row.busy ?? 0} all={row.slots} ahead={(row.claimedAhead ?? 0) + (row.settling ?? 0)} />
        ),
    },
    { title: "Stream", priority: 3, cell: (row) => short(row.changeStream) },
    { title: "Workers", priority: 3, numeric: true, cell: (row) => row.workers?.length ?? "–" },
    { title: "Runs now", priority: 2, sort: "longest", cell: (row) => <Running row={row} at={at} /> },
  ];
}

function Running({ row, at }: { row: OpsInstance; at: string }) {
  const more = row.running.length - SHOWN_JOBS;
  if (row.running.length === 0) return <span class="faint">nothing</span>;
  return (
    <span>
      {row.running.slice(0, SHOWN_JOBS).map((job) => (
        <div key={job.id}>
          <RunningJob job={job} at={at} />
        </div>
      ))}
      {more > 0 && <a href={instanceHref(row.id)}>and {more} more</a>}
    </span>
  );
}
