// Which screens there are, and at which paths. The order of the imports is the one that packs best: others weigh up to 600 bytes more.
import type { ComponentType } from "preact";
import { Jobs } from "./screens/jobs";
import { Schedules } from "./screens/schedules";
import { Failures } from "./screens/failures";
import { Queue } from "./screens/queue";
import { Latency } from "./screens/latency";
import { Instances } from "./screens/instances";
import { Overview } from "./screens/overview";
import { Queues } from "./screens/queues";
import { OneInstance } from "./screens/instances/one";
import { OneSchedule } from "./screens/schedules/one";
import { Job } from "./screens/job";
import { Audit } from "./screens/audit";
import { FailureGroup } from "./screens/failures/group";

export interface Screen {
  /** Where it is; `{id}` stands for one part of the path, which the view gets. */
  path: string;
  title: string;
  /** The key that leads to it after `g`. */
  key?: string;
  view: ComponentType<{ id: string }>;
  /** For what is not in the navigation itself: the screen that it belongs to. */
  under?: string;
  /** The right without which it is not shown. */
  needs?: string;
}

/** The screens in the order of the navigation. */
export const SCREENS: readonly Screen[] = [
  { path: "/", title: "Overview", key: "o", view: Overview },
  { path: "/jobs", title: "Jobs", key: "j", view: Jobs },
  { path: "/jobs/{id}", title: "Job", view: Job, under: "/jobs" },
  { path: "/queues", title: "Queues", key: "q", view: Queues },
  { path: "/queue", title: "Queue", view: Queue, under: "/queues" },
  { path: "/failures", title: "Failures", key: "f", view: Failures },
  { path: "/failures/{id}", title: "Group of failures", view: FailureGroup, under: "/failures" },
  { path: "/schedules", title: "Schedules", key: "s", view: Schedules },
  { path: "/schedules/{id}", title: "Schedule", view: OneSchedule, under: "/schedules" },
  { path: "/instances", title: "Instances", key: "i", view: Instances },
  { path: "/instance", title: "Instance", view: OneInstance, under: "/instances" },
  { path: "/latency", title: "Latency", key: "l", view: Latency },
  { path: "/audit", title: "Audit", key: "a", view: Audit, needs: "audit" },
];

/** The screen at a path, and what stands for `{id}` in it. */
export function find(path: string): [screen: Screen, id: string] | undefined {
  for (const screen of SCREENS) {
    if (screen.path === path) return [screen, ""];
    const [before = "", behind] = screen.path.split("{id}");
    const id = path.slice(before.length);
    if (behind !== undefined && path.startsWith(before) && id !== "" && !id.includes("/")) return [screen, decoded(id)];
  }
  return undefined;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a lone %: somebody typed the address
  }
}
