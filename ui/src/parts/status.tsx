import { shortened } from "../text";

const MARKS: Record<string, string> = {
  due: "●", later: "◷", retrying: "↺", waiting: "◌", running: "▶", stopping: "■", "owner-silent": "?", completed: "✓", failed: "✕", cancelled: "⊘",
  // of schedules and their runs
  active: "●", paused: "❚❚", "never-ran": "◌", late: "!", skipped: "⤼", stored: "＋",
  // of instances
  alive: "●", silent: "⚠", stopped: "○",
};

/** The state of a job, a schedule, a run or an instance as a mark and a word: no meaning by colour alone. */
export function Status({ display, recurring = false }: { display: string; recurring?: boolean }) {
  const word = shortened(display, 24); // outcomes may have been written by others
  return (
    <span class={`status status-${word}`}>
      <span aria-hidden="true">{MARKS[word] ?? "•"}</span> {word.replace("-", " ")}
      {recurring && <span title="recurring" role="img" aria-label="recurring"> ↻</span>}
    </span>
  );
}
