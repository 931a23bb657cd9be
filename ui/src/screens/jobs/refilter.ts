import { change, type Parts } from "../../router";

/** Change filters; the list begins anew. */
export function refilter(parts: Parts): void {
  change({ cursor: undefined, direction: undefined, ...parts });
}

/** Without these filters. */
export function drop(keys: readonly string[]): void {
  refilter(Object.fromEntries(keys.map((key) => [key, undefined])));
}
