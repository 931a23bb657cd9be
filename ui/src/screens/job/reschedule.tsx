import { useSignal } from "@preact/signals";
import type { OpsJob } from "../../api.gen";
import { fromField, toField } from "../../datefield";
import { Confirm } from "../../parts/confirm";
import { now, zone as preferred } from "../../store";
import { absolute, relative, type Zone } from "../../time";
import { Choice } from "../../parts/choice";

const MINUTE = 60_000;
const SOON = [[10 * MINUTE, "in 10 min"], [60 * MINUTE, "in 1 h"], [24 * 60 * MINUTE, "in 24 h"]] as const;

/** Choose another time for a job: a date and a time in a zone, or a while from now. */
export function Reschedule({ title, job, run, close }: { title: string; job: OpsJob; run: (body: object) => Promise<void>; close: () => void }) {
  const zone = useSignal<Zone>(preferred.value);
  const before = job.nextRunAt == null ? now.value : Date.parse(job.nextRunAt);
  const text = useSignal(toField(Math.max(before, now.value), zone.value));
  const at = fromField(text.value, zone.value);
  const change = (to: Zone) => {
    if (at !== undefined) text.value = toField(at, to);
    zone.value = to;
  };
  return (
    <Confirm
      title={title}
      verb="Reschedule"
      ready={at !== undefined}
      run={(note) => run({ nextRunAt: new Date(at ?? 0).toISOString(), note })}
      close={close}
    >
      <p class="bar">
        {SOON.map(([away, words]) => (
          <button key={words} type="button" onClick={() => (text.value = toField(now.value + away, zone.value))}>{words}</button>
        ))}
      </p>
      <label class="field">
        Date and time
        <input type="datetime-local" step={1} required value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      </label>
      <Choice
        field label="Zone" value={zone.value} onChange={(to) => change(to as Zone)}
        options={[["local", `${Intl.DateTimeFormat().resolvedOptions().timeZone} (this browser)`], ["utc", "UTC"]]}
      />
      {at !== undefined && <p class="faint">{absolute(at, zone.value, now.value)}, {relative(at, now.value)}</p>}
    </Confirm>
  );
}
