import { shortened } from "../text";
import { Icon, isIcon, type IconName } from "./icon";

/** Icons of the states that have not their own. */
const ICONS: Record<string, IconName> = {
  retried: "retrying",
  "owner-silent": "silent",
  late: "silent",
  "timed out": "failed",
  // of schedules and instances
  active: "alive",
  "never-ran": "waiting",
  stopped: "stopping",
};

/** The state of a job, a schedule, a run or an instance as an icon and a word: no meaning by colour alone. */
export function Status({ display, recurring = false }: { display: string; recurring?: boolean }) {
  const word = shortened(display, 24); // outcomes may have been written by others
  const icon = ICONS[word] ?? (isIcon(word) ? word : "info");
  return (
    <span class={`status status-${word}`}>
      <Icon name={icon} />
      {word.replace("-", " ")}
      {recurring && <Icon name="schedules" label="recurring" />}
    </span>
  );
}
