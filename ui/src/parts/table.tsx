// A table whose rows are drawn again only when they change, and whose order can be chosen. Below 1280 px the columns
// of a lower priority go; below 800 px each row is a card.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { fitting, layout, type Priority } from "../layout";

export interface Column<T> {
  title: string;
  /** What stands in the head instead of the title. */
  head?: ComponentChildren;
  cell: (row: T) => ComponentChildren;
  /** Numbers stand on the right. */
  numeric?: boolean;
  /** 1 (unless given): always shown. 2: from a width of 800 px. 3: from 1280 px. */
  priority?: Priority;
  /** On the right, without a label in a card: buttons and menus. */
  actions?: boolean;
  /** The name of the order by this column, if there is one. */
  sort?: string;
}

export interface Order {
  by: string;
  down: boolean;
}

interface Props<T> {
  caption: ComponentChildren;
  /** The first column names the row. Pass the same array each time, so that rows need not be drawn again. */
  columns: readonly Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string;
  order?: Order;
  onOrder?: (order: Order) => void;
  empty?: ComponentChildren;
  /** A name for a table that scrolls in a place of its own. */
  scrolls?: string;
  /** Of the element around it. */
  class?: string;
}

export function Table<T>({
  caption,
  columns,
  rows,
  keyOf,
  order,
  onOrder,
  empty = "Nothing.",
  scrolls,
  class: kind = "",
}: Props<T>) {
  const shown = useMemo(() => fitting(columns, layout.value), [columns, layout.value]);
  return (
    <div
      class={`table ${scrolls ? "short" : kind}`}
      {...(scrolls && { tabIndex: 0, role: "region", "aria-label": scrolls })}
    >
      <table class="cards">
        <caption>{caption}</caption>
        <thead>
          <tr>
            {shown.map((column) => (
              <Head key={column.title} column={column} order={order} onOrder={onOrder} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={keyOf(row)} row={row} columns={shown} />
          ))}
          {rows.length === 0 && (
            <tr>
              <td class="faint" colSpan={shown.length}>
                {empty}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

interface HeadProps<T> {
  column: Column<T>;
  order: Order | undefined;
  onOrder: ((order: Order) => void) | undefined;
}

function Head<T>({ column, order, onOrder }: HeadProps<T>) {
  const { title, sort, numeric = false } = column;
  const kind = classOf(column);
  if (sort === undefined || onOrder === undefined)
    return (
      <th scope="col" class={kind}>
        {column.head ?? title}
      </th>
    );
  const down = order?.by === sort ? order.down : undefined;
  const next = down === undefined ? numeric : !down;
  return (
    <th scope="col" class={kind} aria-sort={down === undefined ? undefined : down ? "descending" : "ascending"}>
      <button type="button" onClick={() => onOrder({ by: sort, down: next })}>
        {title}
        {down !== undefined && <span aria-hidden="true"> {down ? "↓" : "↑"}</span>}
      </button>
    </th>
  );
}

function classOf<T>({ numeric, actions }: Column<T>): string | undefined {
  return numeric ? "number" : actions ? "actions" : undefined;
}

/** Preact leaves a row alone whose elements are the same objects as before. */
function Row<T>({ row, columns }: { row: T; columns: readonly Column<T>[] }) {
  return useMemo(
    () => (
      <tr>
        {columns.map((column, at) => {
          const { title, cell } = column;
          return at === 0 ? (
            <th key={title} scope="row" data-label={title}>
              <span>{cell(row)}</span>
            </th>
          ) : (
            <td key={title} class={classOf(column)} data-label={title}>
              <span>{cell(row)}</span>
            </td>
          );
        })}
      </tr>
    ),
    [row, columns],
  );
}
