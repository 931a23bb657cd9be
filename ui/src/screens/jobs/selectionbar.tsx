import { useSignal, type Signal } from "@preact/signals";
import { at } from "../../api";
import type { OpsSelection } from "../../api.gen";
import { useAnswer } from "../../parts/asking";
import { grouped, plural } from "../../text";
import { allowedOperations, type BulkAction } from "./bulk";
import { place } from "../../router";
import { useVerbs } from "../../shortcuts";
import { Later } from "../enqueue/later";
import { pageQuery } from "./filter";
import type { Operation } from "../../tables";
import type { Row } from "./matching";
import { NOTHING, type Selection } from "./selecting";

interface Props {
  selection: Signal<Selection>;
  /** The jobs of the page. */
  rows: readonly Row[];
  asked: OpsSelection;
  /** Whether there are other pages. */
  more: boolean;
  again: () => void;
}

/** What is selected, and what can be done with it. */
export function SelectionBar({ selection, rows, asked, more, again }: Props) {
  const doing = useSignal<BulkAction>();
  const { ids, all } = selection.value;
  const found = all ? asked.status : rows.flatMap(({ job }) => (ids.has(job.id) ? job.status : []));
  const allowed = ids.size === 0 ? [] : allowedOperations().filter((each) => applies(each, found));
  useVerbs(
    allowed.map(({ name: action, verb }) => ({
      label: `${verb} the selected jobs`,
      run: () => (doing.value = action),
    })),
  );
  if (ids.size === 0) return null;
  const close = (changed: boolean) => {
    doing.value = undefined;
    if (!changed) return;
    selection.value = NOTHING;
    again();
  };
  return (
    <div class="bar selection" role="group" aria-label="Selected jobs">
      <strong role="status">{all ? "All that match are selected" : `${plural(ids.size, "job")} selected`}</strong>
      {more && !all && (
        <SelectAll asked={asked} onClick={() => (selection.value = { ...selection.value, all: true })} />
      )}
      {allowed.map(({ name: action, verb }) => (
        <button
          key={action}
          type="button"
          class={action === "delete" ? "danger" : undefined}
          onClick={() => (doing.value = action)}
        >
          {verb}…
        </button>
      ))}
      <button type="button" class="bare" onClick={() => (selection.value = NOTHING)}>
        Clear the selection
      </button>
      {doing.value !== undefined && (
        <Later load={() => import("./bulkdialog")}>
          {({ BulkDialog }) =>
            doing.value && (
              <BulkDialog action={doing.value} target={all ? { filter: asked } : { ids: [...ids] }} close={close} />
            )
          }
        </Later>
      )}
    </div>
  );
}

/** Whether it changes jobs of one of these states; without states, those of any are meant. */
function applies({ states }: Operation, found: readonly string[] | null | undefined): boolean {
  return states === undefined || !found?.length || states.some((each) => found.includes(each));
}

function SelectAll({ asked, onClick }: { asked: OpsSelection; onClick: () => void }) {
  const { answer } = useAnswer(at("/jobs/count", pageQuery(place.value.query, asked.name ?? undefined, true)));
  if (answer === undefined) return null;
  return (
    <button type="button" onClick={onClick}>
      Select all {answer.capped ? "more than " : ""}
      {grouped(answer.count)} that match
    </button>
  );
}
