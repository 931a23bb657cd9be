// What the list and the page of an instance share.
import type { OpsInstance } from "../../api.gen";
import { When } from "../../parts/when";
import { href } from "../../router";
import { snapshot } from "../../stream";
import { shortened, shortId, visible } from "../../text";
import { jobHref } from "../job/acting";

/** The state in one word: one that runs is alive. */
export function stateOf({ state }: OpsInstance): string {
  return state === "running" ? "alive" : visible(state);
}

/** The live numbers know of heartbeats first. */
export function Heard({ instance }: { instance: OpsInstance }) {
  return <When at={snapshot.value?.instances.get(instance.id)?.seenAt ?? instance.seenAt} />;
}

export function hostOf({ host, pid, reported }: OpsInstance): string {
  if (!reported) return "reports nothing (TypeScript, or older)";
  return `${short(host ?? "?")}:${pid ?? "?"}`;
}

/** Instances describe themselves: their texts may be of any length. */
export function short(text: string | null | undefined): string {
  return visible(shortened(text ?? "–", 40));
}

export function instanceHref(id: string): string {
  return href("/instance", { id });
}

/** A job that runs, and since when. `at` is the time of the answer. */
export function RunningJob({ job: { id, name, sinceMs, exact }, at }: { job: OpsInstance["running"][number]; at: string }) {
  return (
    <>
      <a href={jobHref(id)}>{visible(shortened(name, 40))} <span class="mono">{shortId(id)}</span></a>{" "}
      <span class="faint">{sinceMs == null || !exact ? "since an unknown time" : <When at={new Date(Date.parse(at) - sinceMs).toISOString()} />}</span>
    </>
  );
}
