// One row a job name, live.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { OpsQueueRow, OpsRecent } from "../api.gen";
import { Sparkline } from "../charts/sparkline";
import { change, href, place } from "../router";
import { plural, shortened, visible } from "../text";
import { count } from "../time";
import { Icon } from "./icon";
import { useOrder } from "./order";
import { Table, type Column, type Order } from "./table";
import { failureShare } from "./trouble";
import { Took } from "./when";
import { None } from "./none";

type Recent = Record<string, OpsRecent>;

const VALUES: Record<string, (row: OpsQueueRow) => number> = {
  due: (row) => row.due,
  later: (row) => row.later,
  running: (row) => row.running,
  oldest: (row) => row.oldestDueMs,
  rate: (row) => row.completedPerMin ?? 0,
  failing: (row) => failureShare(row) ?? -1,
  wait: (row) => row.waitP95Ms ?? -1,
  failed: (row) => row.failed ?? -1,
};

interface Props {
  rows: readonly OpsQueueRow[];
  recent: Recent;
  /** Columns behind the usual ones; pass the same array each time. */
  more?: readonly Column<OpsQueueRow>[];
}

// All of them change by the second: 500 took about 160 ms of each second to draw, on a busy machine.
const MOST = 100;
const NONE: readonly Column<OpsQueueRow>[] = [];

export function QueueTable({ rows, recent, more = NONE }: Props) {
  const wanted = (place.value.query.get("q") ?? "").toLowerCase();
  const order = orderOf();
  const columns = useMemo(() => [...columnsOf(recent), ...more], [recent, more]);
  const matching = wanted === "" ? rows : rows.filter((row) => row.name.toLowerCase().includes(wanted));
  const all = useSignal(false);
  const { rows: sorted, hold } = useOrder(
    matching,
    (row) => row.name,
    comparison(order),
    `${order.by} ${order.down} ${wanted}`,
  );
  return (
    <div class="queues" {...hold}>
      <Table
        caption={<NameFilter all={rows.length} shown={matching.length} />}
        columns={columns}
        rows={all.value ? sorted : sorted.slice(0, MOST)}
        keyOf={(row) => row.name}
        order={order}
        onOrder={({ by, down }) => change({ sort: by, order: down ? "desc" : "asc" }, "replace")}
        empty={wanted === "" ? "No queues." : "Nothing matches."}
      />
      {sorted.length > MOST && !all.value && (
        <button type="button" onClick={() => (all.value = true)}>
          Show all {sorted.length} queues
        </button>
      )}
    </div>
  );
}

function orderOf(): Order {
  const by = place.value.query.get("sort") ?? "name";
  return { by: by in VALUES ? by : "name", down: place.value.query.get("order") === "desc" };
}

function comparison({ by, down }: Order): (a: OpsQueueRow, b: OpsQueueRow) => number {
  const value = VALUES[by];
  const sign = down ? -1 : 1;
  const byName = (a: OpsQueueRow, b: OpsQueueRow) => (a.name < b.name ? -1 : 1);
  if (value === undefined) return (a, b) => sign * byName(a, b);
  return (a, b) => sign * (value(a) - value(b)) || byName(a, b);
}

function NameFilter({ all, shown }: { all: number; shown: number }) {
  return (
    <span class="bar">
      <span>{shown === all ? plural(all, "queue") : `${shown} of ${plural(all, "queue")}`}</span>
      <label class="choice">
        <span class="hidden-text">Filter by name</span>
        <input
          type="search"
          placeholder="Filter by name"
          value={place.value.query.get("q") ?? ""}
          onInput={(event) => change({ q: event.currentTarget.value }, "replace")}
        />
      </label>
    </span>
  );
}

function columnsOf(recent: Recent): Column<OpsQueueRow>[] {
  return [
    { title: "Queue", sort: "name", cell: Name },
    {
      title: "Due",
      sort: "due",
      numeric: true,
      cell: (row) => <Zero value={row.due} to={href("/jobs", { name: row.name, status: "pending", due: "now" })} />,
    },
    {
      title: "Later",
      sort: "later",
      priority: 3,
      numeric: true,
      cell: (row) => <Zero value={row.later} to={href("/jobs", { name: row.name, status: "pending", due: "later" })} />,
    },
    {
      title: "Running / slots",
      sort: "running",
      numeric: true,
      cell: (row) => <Slots busy={row.running} all={row.slots} ahead={row.claimedAhead} />,
    },
    {
      title: "Oldest waiting",
      priority: 2,
      sort: "oldest",
      numeric: true,
      cell: (row) => <Took ms={row.due > 0 ? row.oldestDueMs : null} />,
    },
    { title: "Per minute", sort: "rate", numeric: true, cell: (row) => <Rate row={row} recent={recent[row.name]} /> },
    { title: "Failing", priority: 2, sort: "failing", numeric: true, cell: (row) => <Failing row={row} /> },
    {
      title: "Wait p95",
      priority: 3,
      sort: "wait",
      numeric: true,
      cell: (row) =>
        row.waitP95Ms == null ? (
          <Took ms={null} />
        ) : (
          <>
            ≈ <Took ms={row.waitP95Ms} />
          </>
        ),
    },
  ];
}

function Name(row: OpsQueueRow) {
  return (
    <span>
      <a href={href("/queue", { name: row.name })} title={visible(row.name)}>
        {visible(shortened(row.name, 60))}
      </a>
      {row.paused && (
        <>
          {" "}
          <span class="flag warn">
            <Icon name="paused" />
            paused
          </span>
        </>
      )}
      {row.due > 0 && row.slots === 0 && !row.paused && (
        <>
          {" "}
          <span class="flag bad">
            <Icon name="silent" />
            nobody serves it
          </span>
        </>
      )}
    </span>
  );
}

/** A count, and nothing to look at where it is none. */
export function Zero({ value, to }: { value: number; to?: string }) {
  if (value === 0) return <span class="faint">0</span>;
  return to === undefined ? count(value) : <a href={to}>{count(value)}</a>;
}

/** How many of the slots are in use, as text and as a bar, and how many jobs are claimed beside those that run. */
export function Slots({ busy, all, ahead = 0 }: { busy: number; all: number; ahead?: number | null | undefined }) {
  const share = all === 0 ? 0 : Math.min(1, busy / all);
  return (
    <span class="slots" title={ahead ? AHEAD : undefined}>
      <span>
        {count(busy)} / {all === 0 ? "–" : count(all)}
        {!!ahead && <span class="faint"> +{count(ahead)}</span>}
        {!!ahead && <span class="hidden-text"> claimed ahead</span>}
      </span>
      <svg width="40" height="8" aria-hidden="true">
        <rect class="gauge" width="40" height="8" rx="2" />
        <rect class="fill-running" width={40 * share} height="8" rx="2" />
      </svg>
    </span>
  );
}

/** What a claimed job does that does not run. */
export const AHEAD = "Claimed ahead: they wait for a slot, or have ended and are being stored";

function Rate({ row, recent }: { row: OpsQueueRow; recent: OpsRecent | undefined }) {
  const completed = row.completedPerMin ?? 0;
  return (
    <span class="slots">
      <span>{count(completed)}</span>
      <Sparkline values={recent === undefined ? [] : [...recent.completed, completed]} />
    </span>
  );
}

function Failing({ row }: { row: OpsQueueRow }) {
  const share = failureShare(row);
  if (share === undefined) return <None />;
  return (
    <span class={share >= 0.1 ? "bad-text" : share === 0 ? "faint" : undefined}>{Math.round(share * 1000) / 10} %</span>
  );
}
