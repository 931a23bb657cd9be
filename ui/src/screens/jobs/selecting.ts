// Which rows are selected. Pure.

export interface Selection {
  ids: ReadonlySet<string>;
  /** The row that was pressed last: Shift selects from it. */
  anchor: string | undefined;
  /** Everything that matches the filters, also what is on no screen. */
  all: boolean;
}

export const NOTHING: Selection = { ids: new Set(), anchor: undefined, all: false };

/** After a press on a row; with Shift, all rows from the last pressed one become as this one becomes. */
export function pressed(before: Selection, id: string, shift: boolean, order: readonly string[]): Selection {
  const ids = new Set(before.ids);
  const on = !ids.has(id);
  for (const each of shift && before.anchor !== undefined ? between(order, before.anchor, id) : [id]) {
    if (on) ids.add(each);
    else ids.delete(each);
  }
  return { ids, anchor: id, all: false };
}

function between(order: readonly string[], one: string, other: string): readonly string[] {
  const [from, to] = [order.indexOf(one), order.indexOf(other)].sort((a, b) => a - b) as [number, number];
  return from < 0 ? [other] : order.slice(from, to + 1);
}

/** After a press on the box of the page. */
export function pagePressed(before: Selection, order: readonly string[]): Selection {
  return before.ids.size === order.length ? NOTHING : { ids: new Set(order), anchor: undefined, all: false };
}
