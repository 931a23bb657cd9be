// How much room there is: all columns, fewer, or cards.
import { signal } from "@preact/signals";

/** 1280 px and more, 800 px and more, less. */
export type Layout = "wide" | "medium" | "small";

const wide = matchMedia("(min-width: 1280px)");
const medium = matchMedia("(min-width: 800px)");

export const layout = signal(now());

for (const each of [wide, medium]) each.addEventListener("change", () => (layout.value = now()));

function now(): Layout {
  return wide.matches ? "wide" : medium.matches ? "medium" : "small";
}

/** 1: a column is always there. 2: from 800 px. 3: from 1280 px. */
export type Priority = 1 | 2 | 3;

/** The columns that have room. */
export function fitting<C extends { priority?: Priority }>(columns: readonly C[], room: Layout): readonly C[] {
  const most = { wide: 3, medium: 2, small: 1 }[room];
  return columns.filter(({ priority = 1 }) => priority <= most);
}
