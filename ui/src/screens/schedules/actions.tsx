import { useSignal } from "@preact/signals";
import { act } from "../../api";
import type { OpsJobAnswer, OpsScheduleAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { usePress } from "../../parts/press";
import { go, href, under } from "../../router";
import { say } from "../../store";
import { jobHref } from "../job/acting";
import { Edit } from "./edit";
import { nameOf } from "./parts";

/** What this reader may do with a schedule; the server says it. */
export function ScheduleActions({ schedule, again }: { schedule: OpsScheduleAnswer; again: () => void }) {
  const asking = useSignal<"pause" | "edit" | "delete">();
  const path = under("/schedules", schedule.id);
  const name = nameOf(schedule);
  const close = () => (asking.value = undefined);
  const runNow = usePress(async () => {
    const job = await act<OpsJobAnswer>("POST", `${path}/run-now`, {});
    say({ tone: "good", text: `${name} runs now.`, link: { href: jobHref(job.id), text: "Open the job" } });
    again();
  });
  const resume = usePress(async () => {
    await act("POST", `${path}/resume`, {});
    say({ tone: "good", text: `${name} goes on.` });
    again();
  });
  const may = (action: OpsScheduleAnswer["actions"][number]) => schedule.actions.includes(action);
  return (
    <>
      {may("run-now") && <button type="button" disabled={runNow.busy} onClick={runNow.press}>Run now</button>}
      {may("resume") && <button type="button" class="primary" disabled={resume.busy} onClick={resume.press}>Resume</button>}
      {may("pause") && <button type="button" onClick={() => (asking.value = "pause")}>Pause…</button>}
      {may("edit") && <button type="button" onClick={() => (asking.value = "edit")}>Edit…</button>}
      {may("delete") && <button type="button" class="danger" onClick={() => (asking.value = "delete")}>Delete…</button>}
      {asking.value === "edit" && <Edit schedule={schedule} path={path} close={close} again={again} />}
      {asking.value === "pause" && (
        <Confirm title={`Pause ${name}?`} verb="Pause" close={close} run={async (note) => {
          await act("POST", `${path}/pause`, { note });
          say({ tone: "good", text: `${name} is paused.` });
          again();
        }}>
          <p>What runs goes on to its end. Times that pass meanwhile are skipped.</p>
        </Confirm>
      )}
      {asking.value === "delete" && (
        <Confirm title={`Delete ${name}?`} verb="Delete" tone="danger" close={close} run={async (note) => {
          await act("DELETE", path, { note });
          say({ tone: "good", text: `${name} is deleted.` });
          go(href("/schedules"));
        }}>
          <p>What runs goes on to its end. A program that declares this schedule stores it again at its next start.</p>
        </Confirm>
      )}
    </>
  );
}
