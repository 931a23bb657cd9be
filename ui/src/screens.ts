// Which screens there are, and at which paths.
import type { ComponentType } from "preact";
import { later } from "./later";
import { Overview } from "./screens/overview";
import { Queues } from "./screens/queues";

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

type Jobs = typeof import("./screens/around_jobs");
type Rest = typeof import("./screens/the_rest");

/** The screens of a file come together: who looks at a list soon looks at one of it. */
const fromJobs = (name: keyof Jobs) => later(async () => (await import("./screens/around_jobs"))[name] as ComponentType<{ id: string }>);
const fromRest = (name: keyof Rest) => later(async () => (await import("./screens/the_rest"))[name] as ComponentType<{ id: string }>);

/** The screens in the order of the navigation. */
export const SCREENS: readonly Screen[] = [
  { path: "/", title: "Overview", key: "o", view: Overview },
  { path: "/jobs", title: "Jobs", key: "j", view: fromJobs("Jobs") },
  { path: "/jobs/{id}", title: "Job", view: fromJobs("Job"), under: "/jobs" },
  { path: "/queues", title: "Queues", key: "q", view: Queues },
  { path: "/queue", title: "Queue", view: fromJobs("Queue"), under: "/queues" },
  { path: "/failures", title: "Failures", key: "f", view: fromRest("Failures") },
  { path: "/failures/{id}", title: "Group of failures", view: fromRest("FailureGroup"), under: "/failures" },
  { path: "/schedules", title: "Schedules", key: "s", view: fromRest("Schedules") },
  { path: "/schedules/{id}", title: "Schedule", view: fromRest("OneSchedule"), under: "/schedules" },
  { path: "/instances", title: "Instances", key: "i", view: fromRest("Instances") },
  { path: "/instance", title: "Instance", view: fromRest("OneInstance"), under: "/instances" },
  { path: "/latency", title: "Latency", key: "l", view: fromRest("Latency") },
  { path: "/audit", title: "Audit", key: "a", view: fromRest("Audit"), needs: "audit" },
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
