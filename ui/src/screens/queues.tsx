// All job names with their live numbers, and what is paused.
import { useMemo } from "preact/hooks";
import { at } from "../api";
import type { OpsQueueList, OpsQueueRow } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { useFresh } from "../parts/fresh";
import { PauseButton, PauseNote, queueWays } from "../parts/pausing";
import { QueueTable, Zero } from "../parts/queues";
import type { Column } from "../parts/table";
import { href } from "../router";
import { may } from "../store";
import { snapshot } from "../stream";
import { None } from "../parts/none";

const EVERY = 30_000;

export function Queues() {
  const asked = useAnswer(at("/queues"));
  useFresh(asked.again, EVERY);
  return (
    <section>
      <div class="bar">
        <h1>Queues</h1>
        <span class="grow" />
        {may("pause") && <PauseButton name={null} verb="Pause" done={asked.again} />}
        <CopyAs
          ways={() =>
            queueWays(
              "These queues",
              asked.address,
              null,
              asked.answer?.pauses.find((each) => each.name === null),
            )
          }
        />
      </div>
      <Answered asked={asked}>{(answer) => <Shown answer={answer} again={asked.again} />}</Answered>
    </section>
  );
}

function Shown({ answer, again }: { answer: OpsQueueList; again: () => void }) {
  const rows = snapshot.value === undefined ? answer.queues : [...snapshot.value.rows.values()];
  const allPaused = answer.pauses.some((pause) => pause.name === null);
  const more = useMemo(() => moreColumns(again, allPaused), [allPaused]);
  return (
    <>
      {answer.pauses.map((pause) => (
        <PauseNote key={pause.name ?? ""} pause={pause} done={again} />
      ))}
      <QueueTable rows={rows} recent={answer.recent} more={more} />
    </>
  );
}

function moreColumns(again: () => void, allPaused: boolean): Column<OpsQueueRow>[] {
  const failed: Column<OpsQueueRow> = {
    title: "Failed",
    priority: 3,
    sort: "failed",
    numeric: true,
    cell: (row) =>
      row.failed == null ? (
        <None />
      ) : (
        <Zero value={row.failed} to={href("/jobs", { name: row.name, status: "failed" })} />
      ),
  };
  if (!may("pause")) return [failed];
  const pause: Column<OpsQueueRow> = {
    title: "Actions",
    actions: true,
    cell: (row) =>
      row.paused && allPaused ? (
        <span class="faint">all are paused</span>
      ) : (
        <PauseButton name={row.name} verb={row.paused ? "Resume" : "Pause"} done={again} />
      ),
  };
  return [failed, pause];
}
