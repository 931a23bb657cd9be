// All job names with their live numbers, and what is paused.
import { useMemo } from "preact/hooks";
import type { OpsQueueList } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { mayPause, PauseButton, PauseNote, queueWays } from "../parts/pausing";
import { QueueTable, Zero } from "../parts/queues";
import type { Column } from "../parts/table";
import { href } from "../router";
import type { QueueRow } from "../snapshot";
import { snapshot } from "../stream";

const EVERY = 30_000;

export function Queues() {
  const asked = useAnswer<OpsQueueList>("/queues");
  useFresh(asked.again, EVERY);
  return (
    <section>
      <div class="bar"><h1>Queues</h1><span class="grow" /><CopyAs ways={() => queueWays("These queues", asked.address, null, asked.answer?.pauses.find((each) => each.name === null))} />{mayPause() && <PauseButton name={null} verb="Pause" done={asked.again} />}</div>
      <Answered asked={asked}>{(answer) => <Shown answer={answer} again={asked.again} />}</Answered>
    </section>
  );
}

function Shown({ answer, again }: { answer: OpsQueueList; again: () => void }) {
  const rows = snapshot.value === undefined ? answer.queues.map(asRow) : [...snapshot.value.rows.values()];
  const allPaused = answer.pauses.some((pause) => pause.name === null);
  const more = useMemo(() => moreColumns(again, allPaused), [allPaused]);
  return (
    <>
      {answer.pauses.map((pause) => <PauseNote key={pause.name ?? ""} pause={pause} done={again} />)}
      <QueueTable rows={rows} recent={answer.recent} more={more} />
    </>
  );
}

/** A row of the answer, for the moment until live numbers are there. */
function asRow(row: OpsQueueList["queues"][number]): QueueRow {
  return {
    ...row, failed: row.failed ?? null, waitP95Ms: row.waitP95Ms ?? null,
    completedPerMin: row.completedPerMin ?? 0, retriedPerMin: row.retriedPerMin ?? 0, failedPerMin: row.failedPerMin ?? 0,
  };
}

function moreColumns(again: () => void, allPaused: boolean): Column<QueueRow>[] {
  const failed: Column<QueueRow> = {
    title: "Failed", sort: "failed", numeric: true,
    cell: (row) => row.failed === null ? <span class="faint">–</span> : <Zero value={row.failed} to={href("/jobs", { name: row.name, status: "failed" })} />,
  };
  if (!mayPause()) return [failed];
  const pause: Column<QueueRow> = {
    title: "Actions",
    cell: (row) => row.paused && allPaused ? <span class="faint">all are paused</span> : <PauseButton name={row.name} verb={row.paused ? "Resume" : "Pause"} done={again} />,
  };
  return [failed, pause];
}
