import { useSignal, type Signal } from "@preact/signals";
import type { OpsCount, OpsSelection } from "../../api.gen";
import { useAnswer } from "../../parts/asking";
import { plural } from "../../text";
import { BULK_ACTIONS, type BulkAction } from "./bulk";
import { BulkDialog } from "./bulkdialog";
import { place } from "../../router";
import { pageQuery } from "./filter";
import { NOTHING, type Selection } from "./selecting";

interface Given {
  selection: Signal<Selection>;
  asked: OpsSelection;
  /** Whether there are other pages. */
  more: boolean;
  again: () => void;
}

/** What is selected, and what can be done with it. */
export function SelectionBar({ selection, asked, more, again }: Given) {
  const doing = useSignal<BulkAction>();
  const { ids, all } = selection.value;
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
      {more && !all && <SelectAll asked={asked} onClick={() => (selection.value = { ...selection.value, all: true })} />}
      {BULK_ACTIONS.filter((each) => each.allowed()).map(({ action, verb }) => (
        <button key={action} type="button" class={action === "delete" ? "danger" : undefined} onClick={() => (doing.value = action)}>{verb}…</button>
      ))}
      <button type="button" class="bare" onClick={() => (selection.value = NOTHING)}>Clear the selection</button>
      {doing.value !== undefined && <BulkDialog action={doing.value} target={all ? { filter: asked } : { ids: [...ids] }} close={close} />}
    </div>
  );
}

function SelectAll({ asked, onClick }: { asked: OpsSelection; onClick: () => void }) {
  const { answer } = useAnswer<OpsCount>("/jobs/count", pageQuery(place.value.query, asked.name ?? undefined, true));
  if (answer === undefined) return null;
  return <button type="button" onClick={onClick}>Select all {answer.capped ? "more than " : ""}{answer.count.toLocaleString("en-GB")} that match</button>;
}
