// A group of failures as text for a bug report. Pure. Payloads are left out: a report is read by many.
import type { OpsGroup, OpsJobAnswer } from "../../api.gen";
import { plural, shown, visible } from "../../text";

interface Given {
  group: OpsGroup;
  /** The newest of its jobs, with the attempts; undefined if it cannot be read. */
  sample: OpsJobAnswer | undefined;
  differingKeys: readonly string[];
  link: string;
}

export function report({ group, sample, differingKeys, link }: Given): string {
  const lines = [
    `# ${visible(group.sentence)}`,
    "",
    `- ${plural(group.count, "job")} (${group.names.map(visible).join(", ")})`,
    `- first seen ${group.firstSeen}, last seen ${group.lastSeen}${group.isNew ? ", new since the last release" : ""}`,
    `- fingerprint ${group.fingerprint}, for example ${group.sampleIds.join(", ")}`,
  ];
  if (differingKeys.length > 0) lines.push(`- payloads differ in ${differingKeys.map(visible).join(", ")}`);
  lines.push(`- ${link}`);
  const error = sample?.attempts?.findLast((each) => each.error != null)?.error;
  const text = error?.traceback ?? sample?.failureReason;
  if (text != null) lines.push("", "```", shown(text.trimEnd()), "```");
  return `${lines.join("\n")}\n`;
}
