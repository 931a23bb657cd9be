import { useMemo } from "preact/hooks";
import type { OpsJob } from "../../api.gen";
import { Status } from "../../parts/status";
import { looksOnly } from "../../store";
import { shortId } from "../../text";
import { RowActions } from "../job/actions";
import type { Column } from "./columns";
import type { Row } from "./matching";
import { pagePressed, pressed, type Selection } from "./selecting";

interface Props {
  caption: string;
  rows: readonly Row[];
  columns: readonly Column[];
  /** Undefined where this reader may not act on many jobs. */
  selection: Selection | undefined;
  onSelect: (selection: Selection) => void;
  onChange: (id: string, after: OpsJob | null) => void;
}

export function JobTable({ caption, rows, columns, selection, onSelect, onChange }: Props) {
  const order = rows.map((row) => row.job.id);
  const some = selection !== undefined && selection.ids.size > 0;
  const scrolls = columns.some(({ key }) => key === "payload" || key === "wait"); // more than there is room for
  return (
    <div class={scrolls ? "table wide" : "table"}>
      <table class="cards jobs">
        <caption>{caption}</caption>
        <thead>
          <tr>
            {selection !== undefined && (
              <td class="tick" data-label="Select the page">
                <input
                  type="checkbox"
                  aria-label="Select the page"
                  checked={some && selection.ids.size === order.length}
                  ref={(box) => {
                    if (box !== null) box.indeterminate = some && selection.ids.size < order.length;
                  }}
                  onChange={() => onSelect(pagePressed(selection, order))}
                />
              </td>
            )}
            <th scope="col">Status</th>
            {columns.map((column) => (
              <th key={column.key} scope="col" class={column.number ? "number" : undefined}>
                {column.title}
              </th>
            ))}
            {!looksOnly() && (
              <th scope="col" class="actions">
                Actions
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <JobRow
              key={row.job.id}
              row={row}
              columns={columns}
              selected={selection?.ids.has(row.job.id)}
              press={(shift) => selection !== undefined && onSelect(pressed(selection, row.job.id, shift, order))}
              onChange={onChange}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  row: Row;
  columns: readonly Column[];
  selected: boolean | undefined;
  press: (shift: boolean) => void;
  onChange: (id: string, after: OpsJob | null) => void;
}

/** A row that no longer matches stays where it is, dimmed, and says where it went. */
function JobRow({ row, columns, selected, press, onChange }: RowProps) {
  const { job, moved, deleted } = row;
  const cells = useMemo(
    () =>
      columns.map(({ key, title, cell, number }) =>
        key === "name" ? (
          <th key={key} scope="row" data-label={title}>
            <Cell of={cell} job={job} />
          </th>
        ) : (
          <td key={key} data-label={title} class={number ? "number" : undefined}>
            <Cell of={cell} job={job} />
          </td>
        ),
      ),
    [job, columns],
  );
  return (
    <tr data-row class={`${moved ? "moved" : ""} ${selected === true ? "selected" : ""}`}>
      {selected !== undefined && (
        <td class="tick" data-label="Select">
          <input
            type="checkbox"
            data-select
            aria-label={`Select ${shortId(job.id)}`}
            checked={selected}
            onClick={(event) => press(event.shiftKey)}
          />
        </td>
      )}
      <td data-label="Status" class="state">
        {deleted ? (
          <span class="status faint">deleted</span>
        ) : (
          <Status display={job.display} recurring={job.recurring != null} />
        )}
        {moved && !deleted && <span class="hidden-text"> no longer in this list</span>}
      </td>
      {cells}
      {!looksOnly() && (
        <td data-label="Actions" class="actions">
          {!deleted && <RowActions job={job} onChange={(after) => onChange(job.id, after)} />}
        </td>
      )}
    </tr>
  );
}

/** Its own component: only a cell whose ages tick is drawn each second. */
function Cell({ of, job }: { of: Column["cell"]; job: OpsJob }) {
  return <>{of(job)}</>;
}
