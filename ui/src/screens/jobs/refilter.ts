import { change } from "../../router";
import type { Parts } from "./filter";

/** Change filters; the list begins anew. */
export function refilter(parts: Parts): void {
  change({ cursor: undefined, direction: undefined, ...(parts as Record<string, string | string[]>) });
}
