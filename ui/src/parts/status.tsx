const MARKS: Record<string, [mark: string, word: string]> = {
  due: ["●", "due"],
  later: ["◷", "later"],
  retrying: ["↺", "retrying"],
  waiting: ["◌", "waiting"],
  running: ["▶", "running"],
  stopping: ["■", "stopping"],
  "owner-silent": ["?", "owner silent"],
  completed: ["✓", "completed"],
  failed: ["✕", "failed"],
  cancelled: ["⊘", "cancelled"],
};

/** The state of a job as a mark and a word: no meaning by colour alone. */
export function Status({ display, recurring = false }: { display: string; recurring?: boolean }) {
  const [mark, word] = MARKS[display] ?? ["•", display];
  return (
    <span class={`status status-${display}`}>
      <span aria-hidden="true">{mark}</span> {word}
      {recurring && <span title="recurring" role="img" aria-label="recurring"> ↻</span>}
    </span>
  );
}
