import { useSignal } from "@preact/signals";
import { act, to } from "../../api";
import type { OpsSchedule, OpsScheduleAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { usePress } from "../../parts/press";
import { go, href } from "../../router";
import { say } from "../../store";
import { jobHref } from "../../parts/joblink";
import { Edit } from "./edit";
import { nameOf } from "./parts";

interface Props<S> {
  schedule: S;
  again: () => void;
}

/** Run now, pause and resume: for the list, where the buttons of each row name its schedule, and for one schedule. */
export function Controls({ schedule, again }: Props<OpsSchedule>) {
  const pausing = useSignal(false);
  const { id } = schedule;
  const name = nameOf(schedule);
  const runNow = usePress(async () => {
    const job = await act(to("POST", "/schedules/{id}/run-now", { id }), {});
    say({ tone: "good", text: `${name} runs now.`, link: { href: jobHref(job.id), text: "Open the job" } });
    again();
  });
  const resume = usePress(async () => {
    await act(to("POST", "/schedules/{id}/resume", { id }), {});
    say({ tone: "good", text: `${name} is resumed.` });
    again();
  });
  const may = (action: OpsSchedule["actions"][number]) => schedule.actions.includes(action);
  const named = <span class="hidden-text"> {name}</span>;
  return (
    <>
      {may("run-now") && (
        <button type="button" disabled={runNow.busy} onClick={runNow.press}>
          Run now{named}
        </button>
      )}
      {may("resume") && (
        <button type="button" class="primary" disabled={resume.busy} onClick={resume.press}>
          Resume{named}
        </button>
      )}
      {may("pause") && (
        <button type="button" onClick={() => (pausing.value = true)}>
          Pause…{named}
        </button>
      )}
      {pausing.value && (
        <Confirm
          title={`Pause ${name}?`}
          verb="Pause"
          close={() => (pausing.value = false)}
          run={async (note) => {
            await act(to("POST", "/schedules/{id}/pause", { id }), { note });
            say({ tone: "good", text: `${name} is paused.` });
            again();
          }}
        >
          <p>The current run finishes. Runs due during the pause are skipped.</p>
        </Confirm>
      )}
    </>
  );
}

/** What this reader may do with a schedule; the server says it. */
export function ScheduleActions({ schedule, again }: Props<OpsScheduleAnswer>) {
  const asking = useSignal<"edit" | "delete">();
  const { id } = schedule;
  const name = nameOf(schedule);
  const close = () => (asking.value = undefined);
  const may = (action: OpsScheduleAnswer["actions"][number]) => schedule.actions.includes(action);
  return (
    <>
      <Controls schedule={schedule} again={again} />
      {may("edit") && (
        <button type="button" onClick={() => (asking.value = "edit")}>
          Edit…
        </button>
      )}
      {may("delete") && (
        <button type="button" class="danger" onClick={() => (asking.value = "delete")}>
          Delete…
        </button>
      )}
      {asking.value === "edit" && <Edit schedule={schedule} close={close} again={again} />}
      {asking.value === "delete" && (
        <Confirm
          title={`Delete ${name}?`}
          verb="Delete"
          tone="danger"
          close={close}
          run={async (note) => {
            await act(to("DELETE", "/schedules/{id}", { id }), { note });
            say({ tone: "good", text: `${name} is deleted.` });
            go(href("/schedules"));
          }}
        >
          <p>The current run finishes. A program that declares this schedule stores it again at its next start.</p>
        </Confirm>
      )}
    </>
  );
}
