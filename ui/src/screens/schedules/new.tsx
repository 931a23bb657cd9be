// A new schedule: a name, an expression in a zone, and the payload of its runs.
import { useSignal } from "@preact/signals";
import { act, to } from "../../api";
import { Confirm } from "../../parts/confirm";
import { bound } from "../../parts/fields";
import { href, under } from "../../router";
import { say } from "../../store";
import { visible } from "../../text";
import { JobNameField, PayloadField } from "../enqueue/fields";
import { payloadOf } from "../enqueue/payload";
import { CronFields } from "./edit";

export function NewSchedule({ close, done }: { close: () => void; done: () => void }) {
  const name = useSignal("");
  const key = useSignal("");
  const cron = useSignal("0 9 * * *");
  const timezone = useSignal(Intl.DateTimeFormat().resolvedOptions().timeZone);
  const text = useSignal("null");
  const { value, problem } = payloadOf(text.value);
  return (
    <Confirm
      wide
      title="New schedule"
      verb="Create"
      ready={problem === undefined && name.value.trim() !== ""}
      close={close}
      run={async (note) => {
        const stored = await act(to("POST", "/schedules"), {
          name: name.value.trim(),
          cron: cron.value.trim(),
          timezone: timezone.value.trim(),
          uniqueKey: key.value || undefined,
          payload: value,
          paused: false,
          note,
        });
        const link = { href: href(under("/schedules", stored.id)), text: "Open" };
        say({ tone: "good", text: `${visible(stored.name)} is scheduled.`, link });
        done();
      }}
    >
      <JobNameField text={name} />
      <CronFields cron={cron} timezone={timezone} />
      <PayloadField text={text} />
      <label class="field">
        Key
        <input {...bound(key)} maxLength={255} spellcheck={false} placeholder="tells schedules of one name apart" />
      </label>
    </Confirm>
  );
}
