// Change a schedule, and see what that would do before it is done.
import { useSignal, type Signal } from "@preact/signals";
import { bound } from "../../parts/fields";
import { act, problemOf, to } from "../../api";
import type { OpsScheduleAnswer, OpsSchedulePreview } from "../../api.gen";
import { useTyped } from "../../parts/asking";
import { CopyAs } from "../../parts/copy";
import { Confirm } from "../../parts/confirm";
import { say } from "../../store";
import { visible } from "../../text";
import { changeOf } from "./editing";
import { nameOf } from "./parts";
import { Edges, Runs } from "./runs";
import { useUid } from "../../parts/uid";

interface Props {
  schedule: OpsScheduleAnswer;
  close: () => void;
  again: () => void;
}

export function Edit({ schedule, close, again }: Props) {
  const change = to("PUT", "/schedules/{id}", { id: schedule.id });
  const cron = useSignal(schedule.cron ?? "");
  const timezone = useSignal(schedule.timezone ?? "UTC");
  const before = JSON.stringify(schedule.payload ?? null, null, 2);
  const payload = useSignal(before);
  const isCron = schedule.cron != null;
  const mayPayload = schedule.payloadHidden !== true && schedule.truncated == null;
  const asked = changeOf(schedule, {
    cron: cron.value,
    timezone: timezone.value,
    payload: payload.value === before ? undefined : payload.value,
  });
  return (
    <Confirm
      title={`Edit ${nameOf(schedule)}`}
      verb="Save"
      close={close}
      ready={asked.body !== undefined}
      run={async (note) => {
        await act(change, { ...asked.body, note });
        say({ tone: "good", text: `${nameOf(schedule)} is changed.` });
        again();
      }}
    >
      {isCron && <CronFields cron={cron} timezone={timezone} />}
      {mayPayload && (
        <label class="field">
          Payload
          <textarea class="mono" rows={6} spellcheck={false} {...bound(payload)} />
        </label>
      )}
      {asked.body && (
        <p>
          <CopyAs
            ways={() => [
              {
                title: "This change",
                ...change,
                body: { ...asked.body },
                name: schedule.name,
                key: schedule.key,
              },
            ]}
          />
        </p>
      )}
      {asked.problem !== undefined && (
        <p class="bad-text" role="status">
          {asked.problem}
        </p>
      )}
      <p class="faint">A program that declares this schedule sets it back at its next start.</p>
    </Confirm>
  );
}

/** An expression in a zone, and what it would do. */
export function CronFields({ cron, timezone }: { cron: Signal<string>; timezone: Signal<string> }) {
  const zones = useUid();
  return (
    <>
      <label class="field">
        Cron
        <input class="mono" {...bound(cron)} required maxLength={200} spellcheck={false} />
      </label>
      <label class="field">
        Time zone
        <input list={zones} {...bound(timezone)} required maxLength={100} spellcheck={false} />
        <datalist id={zones}>
          {Intl.supportedValuesOf("timeZone").map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      </label>
      <Preview cron={cron.value.trim()} timezone={timezone.value.trim()} />
    </>
  );
}

// Who types pauses for about this long between two words.
const PAUSE = 250;

/** What the expression would do, asked while it is typed. */
function Preview({ cron, timezone }: { cron: string; timezone: string }) {
  const found = useSignal<OpsSchedulePreview>();
  const problem = useSignal<string>();
  const ask = (stop: AbortSignal) =>
    act(to("POST", "/schedules/preview"), { cron, timezone, count: 5 }, undefined, stop).then(
      (answer) => ([found.value, problem.value] = [answer, undefined]),
      (error: unknown) =>
        stop.aborted || (problem.value = problemOf(error).errors[0]?.what ?? problemOf(error).message),
    );
  useTyped(ask, [cron, timezone], PAUSE);
  if (problem.value !== undefined)
    return (
      <p class="bad-text" role="status">
        {visible(problem.value)}
      </p>
    );
  if (found.value === undefined) return null;
  return (
    <div class="preview" role="status">
      <p>
        <strong>{visible(found.value.words ?? "")}</strong>
      </p>
      <Runs runs={found.value.nextRuns} timezone={timezone} caption="It would run" />
      <Edges of={found.value} />
    </div>
  );
}
