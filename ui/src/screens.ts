// Which screens there are, and at which paths.
import type { View } from "./lazy";
import type { IconName } from "./parts/icon";

export interface Screen {
  /** Where it is; `{id}` stands for one part of the path, which the view gets. */
  path: string;
  title: string;
  /** In the navigation. */
  icon?: IconName;
  /** The key that leads to it after `g`. */
  key?: string;
  /** Fetches it; a screen of its own file is a chunk of its own. */
  load: () => Promise<View>;
  /** For what is not in the navigation itself: the screen that it belongs to. */
  under?: string;
  /** The right without which it is not shown. */
  needs?: string;
}

/** The screens in the order of the navigation. */
export const SCREENS: readonly Screen[] = [
  {
    path: "/",
    title: "Overview",
    icon: "overview",
    key: "o",
    load: () => import("./screens/overview").then((file) => file.Overview),
  },
  {
    path: "/jobs",
    title: "Jobs",
    icon: "jobs",
    key: "j",
    load: () => import("./screens/jobs").then((file) => file.Jobs),
  },
  { path: "/jobs/{id}", title: "Job", load: () => import("./screens/job").then((file) => file.Job), under: "/jobs" },
  {
    path: "/batch",
    title: "Batch",
    load: () => import("./screens/batches/one").then((file) => file.Batch),
    under: "/jobs",
  },
  {
    path: "/queues",
    title: "Queues",
    icon: "queues",
    key: "q",
    load: () => import("./screens/queues").then((file) => file.Queues),
  },
  {
    path: "/queue",
    title: "Queue",
    load: () => import("./screens/queue").then((file) => file.Queue),
    under: "/queues",
  },
  {
    path: "/failures",
    title: "Failures",
    icon: "failed",
    key: "f",
    load: () => import("./screens/failures").then((file) => file.Failures),
  },
  {
    path: "/failures/{id}",
    title: "Group of failures",
    load: () => import("./screens/failures/group").then((file) => file.FailureGroup),
    under: "/failures",
  },
  {
    path: "/schedules",
    title: "Schedules",
    icon: "schedules",
    key: "s",
    load: () => import("./screens/schedules").then((file) => file.Schedules),
  },
  {
    path: "/schedules/{id}",
    title: "Schedule",
    load: () => import("./screens/schedules/one").then((file) => file.OneSchedule),
    under: "/schedules",
  },
  {
    path: "/instances",
    title: "Instances",
    icon: "instances",
    key: "i",
    load: () => import("./screens/instances").then((file) => file.Instances),
  },
  {
    path: "/instance",
    title: "Instance",
    load: () => import("./screens/instances/one").then((file) => file.OneInstance),
    under: "/instances",
  },
  {
    path: "/latency",
    title: "Latency",
    icon: "latency",
    key: "l",
    load: () => import("./screens/latency").then((file) => file.Latency),
  },
  {
    path: "/audit",
    title: "Audit",
    icon: "audit",
    key: "a",
    load: () => import("./screens/audit").then((file) => file.Audit),
    needs: "audit",
  },
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
