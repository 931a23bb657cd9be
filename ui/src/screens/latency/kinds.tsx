// The runs of a window by job name: how many, how long, and the longest with its job.
import { useMemo } from "preact/hooks";
import { at } from "../../api";
import type { OpsKind, OpsKinds } from "../../api.gen";
import { Answered, useAnswer } from "../../parts/asking";
import { useFresh } from "../../parts/fresh";
import { jobHref } from "../../parts/joblink";
import { None } from "../../parts/none";
import { Table, type Column } from "../../parts/table";
import { Took } from "../../parts/when";
import type { Window } from "../../parts/windows";
import { change, href, place } from "../../router";
import { grouped, plural, visible } from "../../text";
import { count, duration } from "../../time";

interface Props {
  name: string | undefined;
  range: { from: string; to: string } | undefined;
  window: Window;
}

export function Kinds({ name, range, window }: Props) {
  const asked = useAnswer(at("/latency/kinds", { name, ...(range ?? { window }) }));
  useFresh(asked.again, 15_000);
  return <Answered asked={asked}>{(answer) => <Shown answer={answer} />}</Answered>;
}

const SORTS = {
  name: (a: OpsKind, b: OpsKind) => (a.name < b.name ? 1 : -1),
  runs: (a: OpsKind, b: OpsKind) => a.runs - b.runs,
  total: (a: OpsKind, b: OpsKind) => a.totalMs - b.totalMs,
  p50: (a: OpsKind, b: OpsKind) => (a.percentiles.p50Ms ?? 0) - (b.percentiles.p50Ms ?? 0),
  p95: (a: OpsKind, b: OpsKind) => (a.percentiles.p95Ms ?? 0) - (b.percentiles.p95Ms ?? 0),
  longest: (a: OpsKind, b: OpsKind) => (a.longestMs ?? -1) - (b.longestMs ?? -1),
};

function Shown({ answer }: { answer: OpsKinds }) {
  const { query } = place.value;
  const asked = query.get("sort") ?? "total";
  const by = asked in SORTS ? (asked as keyof typeof SORTS) : "total";
  const down = query.get("order") !== "asc";
  const rows = useMemo(() => {
    const found = [...answer.kinds].sort(SORTS[by]);
    return down ? found.reverse() : found;
  }, [answer, by, down]);
  return (
    <>
      <Table
        caption={`Run times of ${plural(rows.length, "job name")}`}
        columns={COLUMNS}
        rows={rows}
        keyOf={(row) => row.name}
        order={{ by, down }}
        onOrder={({ by: sort, down }) => change({ sort, order: down ? undefined : "asc" }, "replace")}
        empty="No run ended in this time."
      />
      {answer.capped && (
        <p class="faint small">
          The longest are those of the {grouped(answer.lookedAt)} jobs that changed last; there are more in this time.
        </p>
      )}
    </>
  );
}

const COLUMNS: readonly Column<OpsKind>[] = [
  {
    title: "Name",
    sort: "name",
    cell: (row) => (
      <a class="line" href={href("/queue", { name: row.name })} title={visible(row.name)}>
        {visible(row.name)}
      </a>
    ),
  },
  { title: "Runs", numeric: true, sort: "runs", cell: (row) => count(row.runs) },
  { title: "Total time", numeric: true, sort: "total", cell: (row) => <Took ms={row.totalMs} /> },
  { title: "Share", numeric: true, cell: (row) => `${(row.share * 100).toFixed(1)} %` },
  { title: "p50", numeric: true, sort: "p50", priority: 2, cell: (row) => about(row.percentiles.p50Ms) },
  { title: "p95", numeric: true, sort: "p95", cell: (row) => about(row.percentiles.p95Ms) },
  {
    title: "Longest",
    numeric: true,
    sort: "longest",
    cell: ({ longestJob, longestMs }) =>
      longestJob == null || longestMs == null ? (
        <None />
      ) : (
        <a href={jobHref(longestJob)} title="Open the job">
          {duration(longestMs)}
        </a>
      ),
  },
];

function about(ms: number | null | undefined) {
  return ms == null ? <None /> : <span class="number">≈ {duration(ms)}</span>;
}
