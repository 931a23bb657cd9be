import { act } from "../../api";
import type { OpsEnqueued, OpsJobAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { under } from "../../router";
import { may, say } from "../../store";
import { shortId, visible } from "../../text";
import { jobHref } from "./acting";
import { Opener } from "../../parts/opener";

/** Store a completed job once more. The server takes the payload as it is stored: no page sees its secrets. */
export function EnqueueAgain({ job: { id, name, status } }: { job: OpsJobAnswer }) {
  if (status !== "completed" || !may("enqueue")) return null;
  return (
    <Opener label="Enqueue again…">
      {(close) => (
        <Confirm title={`Enqueue ${visible(name)} again?`} verb="Enqueue again" close={close} run={async (note) => {
          const stored = await act<OpsEnqueued>("POST", `${under("/jobs", id)}/enqueue-again`, { note });
          say({ tone: "good", text: `Enqueued ${visible(name)} ${shortId(stored.id)}.`, link: { href: jobHref(stored.id), text: "Open" } });
        }}>
          <p>A new job of this name is stored, due now, with the same payload.</p>
        </Confirm>
      )}
    </Opener>
  );
}
