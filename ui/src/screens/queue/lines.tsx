// The lines of a limit by key: how many jobs of each key run and wait.
import { useSignal } from "@preact/signals";
import { at } from "../../api";
import type { OpsLine } from "../../api.gen";
import { useAnswer } from "../../parts/asking";
import { useFresh } from "../../parts/fresh";
import { Table, type Column } from "../../parts/table";
import { When } from "../../parts/when";
import { href } from "../../router";
import { plural, shortened, visible } from "../../text";
import { count } from "../../time";

const COLUMNS: readonly Column<OpsLine & { place: number }>[] = [
  {
    title: "Key",
    cell: ({ key, place }) => (key == null ? <span class="faint">line {place}</span> : visible(shortened(key, 60))),
  },
  { title: "Running", numeric: true, cell: ({ running }) => count(running) },
  { title: "Waiting", numeric: true, cell: ({ waiting }) => count(waiting) },
  { title: "Oldest", numeric: true, cell: ({ oldest }) => <When at={oldest} /> },
];

const FEW = 8;

/** Nothing, where the name has no limit by key or nobody is in a line. */
export function Lines({ name }: { name: string }) {
  const asked = useAnswer(at("/lines", { name }));
  const all = useSignal(false);
  useFresh(asked.again, 5_000, asked.problem);
  const lines = (asked.answer?.lines ?? []).map((line, index) => ({ ...line, place: index + 1 }));
  if (lines.length === 0) return null;
  const waiting = lines.reduce((sum, each) => sum + each.waiting, 0);
  return (
    <section aria-labelledby="lines">
      <Table
        caption={
          <h2 id="lines">
            Lines of its limit <span class="faint">those with the most waiting jobs first</span>
          </h2>
        }
        columns={COLUMNS}
        rows={all.value ? lines : lines.slice(0, FEW)}
        keyOf={({ place, key }) => `${place} ${key}`}
      />
      <p>
        <a href={href("/jobs", { name, waitsFor: "turn" })}>{plural(waiting, "job")} in line</a>
      </p>
      {lines.length > FEW && !all.value && (
        <button type="button" onClick={() => (all.value = true)}>
          Show {lines.length - FEW} more
        </button>
      )}
    </section>
  );
}
