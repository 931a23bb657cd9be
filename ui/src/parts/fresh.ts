import { untracked, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Problem } from "../api";
import { lastAction, paused } from "../stream";

/**
 * Ask again every so often, while somebody can see the answer, and at once after an operator acted.
 * With `problem`: not after the answer that there is no such thing. A deleted job does not come back.
 */
export function useFresh(again: () => void, everyMs: number, problem?: Problem): void {
  const gone = problem?.status === 404;
  useEffect(() => {
    if (gone) return;
    const timer = setInterval(() => {
      if (!document.hidden && !paused.value) again();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, gone]);
  useSignalEffect(() => {
    if (lastAction.value !== undefined) untracked(again);
  });
}
