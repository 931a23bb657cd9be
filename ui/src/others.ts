// What other operators do, said on this page.
import { effect, untracked } from "@preact/signals";
import type { OpsActed } from "./api.gen";
import { jobHref } from "./parts/joblink";
import { me, say } from "./store";
import { lastAction } from "./stream";
import { shortened, visible } from "./text";

export function sayWhatOthersDo(): void {
  effect(() => {
    const done = lastAction.value;
    // Without the right to read the trail nobody learns who acted: it may have been this reader.
    if (done?.actor == null || done.actor === me.peek()?.actor.name) return;
    untracked(() =>
      say({
        tone: "plain",
        text: sentence(done),
        link: done.jobId == null ? undefined : { href: jobHref(done.jobId), text: "Open the job" },
      }),
    );
  });
}

function sentence({ actor, words, outcome, name }: OpsActed): string {
  const what = `${visible(shortened(actor ?? "", 40))}: ${visible(words)}${name == null ? "" : ` of ${visible(shortened(name, 40))}`}`;
  return outcome === "done" ? `${what}.` : `${what}, ${visible(outcome)}.`;
}
