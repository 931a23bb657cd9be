// What is wrong, before everything else: each with what mends it.
import type { OpsFinding } from "../api.gen";
import { href } from "../router";
import { snapshot } from "../stream";
import { shortened, visible } from "../text";

/** Where one sees more of what a check found. */
const PLACES: Record<string, [path: string, text: string]> = {
  "jobs without a worker": ["/queues", "Open the queues"],
  "oldest due job": ["/queues", "Open the queues"],
  "paused names": ["/queues", "Open the queues"],
  schedules: ["/schedules", "Open the schedules"],
  "stale jobs": ["/instances", "Open the instances"],
  "silent instances": ["/instances", "Open the instances"],
  "stuck jobs": ["/jobs?status=processing", "Open what runs"],
};

export function Warnings({ found }: { found: readonly OpsFinding[] }) {
  const all = [...silent(), ...found];
  if (all.length === 0) return null;
  return (
    <section aria-label="Warnings">
      <ul class="warnings">
        {all.map((each) => <Warning key={`${each.check} ${each.message}`} finding={each} />)}
      </ul>
    </section>
  );
}

function Warning({ finding: { check, level, message, advice } }: { finding: OpsFinding }) {
  const [path, text] = PLACES[check] ?? [];
  return (
    <li class={`banner ${level === "error" ? "bad" : "warn"}`}>
      <b>{level === "error" ? "✕ Error" : "! Warning"}: {visible(check)}.</b> {visible(shortened(message, 300))}
      {advice != null && <span class="advice"> → {visible(advice)}</span>}
      {path !== undefined && <> <a href={href(path)}>{text}</a></>}
    </li>
  );
}

/** Instances that did not say goodbye and are not heard of. */
function silent(): OpsFinding[] {
  const names = [...(snapshot.value?.instances.values() ?? [])]
    .filter((each) => !each.alive && each.state !== "stopped")
    .map((each) => `${each.host ?? each.id}${each.pid === null ? "" : `:${each.pid}`}`);
  if (names.length === 0) return [];
  const more = names.length > 3 ? ` and ${names.length - 3} more` : "";
  return [{
    check: "silent instances", level: "warning", message: `${names.slice(0, 3).join(", ")}${more}`,
    advice: "if the process died, others take its jobs over; start it again",
  }];
}
