import { useSignal } from "@preact/signals";
import { act, to } from "../../api";
import type { OpsJobAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { bound } from "../../parts/fields";
import { Opener } from "../../parts/opener";
import { jobHref } from "../../parts/joblink";
import { may, say } from "../../store";
import { parsed, shortId, visible } from "../../text";

/** Whether a signal could be of use: somebody waits for one, or has waited. */
export function takesSignals({ status, recurring, waitsFor, steps, signals }: OpsJobAnswer): boolean {
  if (recurring != null || (status !== "pending" && status !== "processing")) return false;
  return waitsFor?.why === "signal" || Boolean(steps?.length) || Boolean(signals?.length);
}

interface Props {
  job: OpsJobAnswer;
  done: () => void;
}

export function SendSignal({ job, done }: Props) {
  if (!may("signal") || !takesSignals(job)) return null;
  return (
    <Opener label="Send signal…" class={job.waitsFor?.why === "signal" ? "primary" : undefined}>
      {(close) => <SignalDialog job={job} done={done} close={close} />}
    </Opener>
  );
}

/** The name and the data of a signal; data is JSON, or nothing. */
export function SignalDialog({ job: { id, name, waitsFor }, done, close }: Props & { close: () => void }) {
  const signal = useSignal(waitsFor?.signal ?? "");
  const data = useSignal("");
  const isJson = data.value.trim() === "" || parsed(data.value) !== undefined;
  return (
    <Confirm
      title={`Send a signal to ${visible(name)} ${shortId(id)}`}
      verb="Send signal"
      ready={signal.value !== "" && isJson}
      close={close}
      run={async (note) => {
        const value = data.value.trim() === "" ? null : parsed(data.value);
        await act(to("POST", "/jobs/{id}/signals", { id }), { name: signal.value, data: value, note });
        say({
          tone: "good",
          text: `Sent “${visible(signal.value)}” to ${visible(name)} ${shortId(id)}.`,
          link: { href: jobHref(id), text: "Open" },
        });
        done();
      }}
    >
      <label class="field">
        Signal
        <input required maxLength={255} {...bound(signal)} />
      </label>
      <label class="field">
        Data as JSON
        <textarea
          rows={4}
          spellcheck={false}
          placeholder={'{"by": "DHL"}, or nothing'}
          aria-invalid={!isJson}
          {...bound(data)}
        />
      </label>
      {!isJson && <p class="refused">This is no JSON. A text needs quotes: "paid".</p>}
    </Confirm>
  );
}
