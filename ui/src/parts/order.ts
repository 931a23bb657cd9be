// The order of rows that change by the second. Rows do not move under a pointer, nor more often than they can be followed.
import { useRef } from "preact/hooks";
import { steady } from "../steady";

// Twice as often and a reader loses their row; half as often, and the order chosen seems not to be kept.
const SHORTEST = 3_000;

export interface Ordered<T> {
  rows: T[];
  /** For the element around the table: while a pointer or the focus is in it, the order stays. */
  hold: Record<string, (event: Event) => void>;
}

/** Sort rows. `how` names the order: when it changes, rows are sorted at once. */
export function useOrder<T>(
  rows: readonly T[],
  keyOf: (row: T) => string,
  compare: (a: T, b: T) => number,
  how: string,
): Ordered<T> {
  const kept = useRef({ how: "", at: 0, keys: [] as string[] });
  const holders = useRef(new Set<string>());
  const { current } = kept;
  const sorted = [...rows].sort(compare);
  const mayMove = holders.current.size === 0 && Date.now() - current.at >= SHORTEST;
  if (mayMove || current.how !== how) kept.current = { how, at: Date.now(), keys: sorted.map(keyOf) };
  const held = (kind: string, on: boolean) => () => {
    if (on) holders.current.add(kind);
    else holders.current.delete(kind);
  };
  return {
    rows: steady(kept.current.keys, sorted, keyOf),
    hold: {
      onPointerEnter: held("pointer", true),
      onPointerLeave: held("pointer", false),
      onFocusIn: held("focus", true),
      onFocusOut: held("focus", false),
    },
  };
}
