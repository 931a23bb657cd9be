// Change a schedule, and see what that would do before it is done.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { act, problemOf } from "../../api";
import type { OpsScheduleAnswer, OpsSchedulePreview } from "../../api.gen";
import { CopyAs } from "../../parts/copy";
import { Confirm } from "../../parts/confirm";
import { say } from "../../store";
import { visible } from "../../text";
import { wish } from "./editing";
import { nameOf } from "./parts";
import { Edges, Runs } from "./runs";
import { useUid } from "../../parts/uid";

interface Given {
  schedule: OpsScheduleAnswer;
  path: string;
  close: () => void;
  again: () => void;
}

export function Edit({ schedule, path, close, again }: Given) {
  const zones = useUid();
  const cron = useSignal(schedule.cron ?? "");
  const timezone = useSignal(schedule.timezone ?? "UTC");
  const before = JSON.stringify(schedule.payload ?? null, null, 2);
  const payload = useSignal(before);
  const isCron = schedule.cron != null;
  const mayPayload = schedule.payloadHidden !== true && schedule.truncated == null;
  const asked = wish(schedule, { cron: cron.value, timezone: timezone.value, payload: payload.value === before ? undefined : payload.value });
  return (
    <Confirm title={`Edit ${nameOf(schedule)}`} verb="Save" close={close} ready={asked.body !== undefined} run={async (note) => {
      await act("PUT", path, { ...asked.body, note });
      say({ tone: "good", text: `${nameOf(schedule)} is changed.` });
      again();
    }}>
      {isCron && (
        <>
          <label class="field">Cron<input class="mono" value={cron.value} required maxLength={200} spellcheck={false} onInput={(event) => (cron.value = event.currentTarget.value)} /></label>
          <label class="field">
            Time zone
            <input list={zones} value={timezone.value} required maxLength={100} spellcheck={false} onInput={(event) => (timezone.value = event.currentTarget.value)} />
            <datalist id={zones}>{Intl.supportedValuesOf("timeZone").map((each) => <option key={each} value={each} />)}</datalist>
          </label>
          <Preview cron={cron.value.trim()} timezone={timezone.value.trim()} />
        </>
      )}
      {mayPayload && <label class="field">Payload<textarea class="mono" rows={6} spellcheck={false} value={payload.value} onInput={(event) => (payload.value = event.currentTarget.value)} /></label>}
      {asked.body && <p><CopyAs ways={() => [{ title: "This change", path, method: "PUT", body: { ...asked.body }, name: schedule.name, key: schedule.key }]} /></p>}
      {asked.problem !== undefined && <p class="bad-text" role="status">{asked.problem}</p>}
      <p class="faint">A program that declares this schedule sets it back at its next start.</p>
    </Confirm>
  );
}

// Who types pauses for about this long between two words.
const PAUSE = 250;

/** What the expression would do, asked while it is typed. */
function Preview({ cron, timezone }: { cron: string; timezone: string }) {
  const found = useSignal<OpsSchedulePreview>();
  const problem = useSignal<string>();
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => {
      act<OpsSchedulePreview>("POST", "/schedules/preview", { cron, timezone, count: 5 }, undefined, stop.signal).then(
        (answer) => ([found.value, problem.value] = [answer, undefined]),
        (error: unknown) => stop.signal.aborted || (problem.value = problemOf(error).errors[0]?.what ?? problemOf(error).message),
      );
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [cron, timezone]);
  if (problem.value !== undefined) return <p class="bad-text" role="status">{visible(problem.value)}</p>;
  if (found.value === undefined) return null;
  return (
    <div class="preview" role="status">
      <p><strong>{visible(found.value.words ?? "")}</strong></p>
      <Runs runs={found.value.nextRuns} timezone={timezone} caption="It would run" />
      <Edges of={found.value} timezone={timezone} />
    </div>
  );
}
