// What the list and the page of an instance share.
import type { OpsInstance } from "../../api.gen";
import { JobLink } from "../../parts/joblink";
import { When } from "../../parts/when";
import { href } from "../../router";
import { now, zone } from "../../store";
import { snapshot } from "../../stream";
import { shortened, visible } from "../../text";
import { duration, exact } from "../../time";

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
export function RunningJob({
  job: { id, name, sinceMs, exact: isExact },
  at,
}: {
  job: OpsInstance["running"][number];
  at: string;
}) {
  return (
    <>
      <span class="apart">
        <JobLink id={id} name={name} />
      </span>{" "}
      <span class="faint">
        {sinceMs == null || !isExact ? "since an unknown time" : <Running since={Date.parse(at) - sinceMs} />}
      </span>
    </>
  );
}

/** For how long, ticking. */
function Running({ since }: { since: number }) {
  const seconds = Math.max(0, Math.floor((now.value - since) / 1000));
  return (
    <span class="nowrap" title={exact(since, zone.value)}>
      {seconds ? `for ${duration(seconds * 1000)}` : "just started"}
    </span>
  );
}
