import { act, to } from "../../api";
import type { OpsJobAnswer } from "../../api.gen";
import { Confirm } from "../../parts/confirm";
import { may, say } from "../../store";
import { shortId, visible } from "../../text";
import { jobHref } from "../../parts/joblink";
import { Opener } from "../../parts/opener";

/** Store a completed job once more. The server takes the payload as it is stored: no page sees its secrets. */
export function EnqueueAgain({ job: { id, name, status } }: { job: OpsJobAnswer }) {
  if (status !== "completed" || !may("enqueue")) return null;
  return (
    <Opener label="Enqueue again…">
      {(close) => (
        <Confirm
          title={`Enqueue ${visible(name)} again?`}
          verb="Enqueue again"
          close={close}
          run={async (note) => {
            const stored = await act(to("POST", "/jobs/{id}/enqueue-again", { id }), { note });
            say({
              tone: "good",
              text: `Enqueued ${visible(name)} ${shortId(stored.id)}.`,
              link: { href: jobHref(stored.id), text: "Open" },
            });
          }}
        >
          <p>Stores a new job with the same payload, due now.</p>
        </Confirm>
      )}
    </Opener>
  );
}
