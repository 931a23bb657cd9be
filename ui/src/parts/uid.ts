import { useMemo } from "preact/hooks";

let last = 0;

/** A name for an element that another one refers to; the same as long as the component lives. */
export function useUid(): string {
  return useMemo(() => `u${++last}`, []);
}
