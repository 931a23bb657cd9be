import { untracked, useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { lastAction, paused } from "../stream";

/** Ask again every so often, while somebody can see the answer, and at once after an operator acted. */
export function useFresh(again: () => void, everyMs: number): void {
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (!document.hidden && !paused.value) again();
    }, everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
  useSignalEffect(() => {
    if (lastAction.value !== undefined) untracked(again);
  });
}
