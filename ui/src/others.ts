// What other operators do, said on this page.
import { effect, untracked } from "@preact/signals";
import type { OpsAuditEntry } from "./api.gen";
import { jobHref } from "./screens/job/acting";
import { me, say } from "./store";
import { lastAction } from "./stream";
import { shortened, visible } from "./text";

// An action on many jobs comes in pieces; whoever hears of each hears nothing else.
const SHORTEST = 10_000;

export function sayWhatOthersDo(): void {
  let saidAt = 0;
  effect(() => {
    const done = lastAction.value as OpsAuditEntry | undefined;
    if (done === undefined || done.actor === me.peek()?.actor.name || Date.now() - saidAt < SHORTEST) return;
    saidAt = Date.now();
    untracked(() => say({ tone: "plain", text: sentence(done), link: done.jobId == null ? undefined : { href: jobHref(done.jobId), text: "Open the job" } }));
  });
}

function sentence({ actor, words, outcome, name }: OpsAuditEntry): string {
  const what = `${visible(shortened(actor, 40))}: ${visible(words)}${name == null ? "" : ` of ${visible(shortened(name, 40))}`}`;
  return outcome === "done" ? `${what}.` : `${what}, ${visible(outcome)}.`;
}
