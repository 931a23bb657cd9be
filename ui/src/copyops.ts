// Failures, schedules, instances and the trail in other languages, as `copyas` has it for jobs. Pure.
import type { OpsSchedule } from "./api.gen";
import { curl, python, shell, withImports, type Root, type Way } from "./copyas";

function search(query: URLSearchParams): string {
  return query.size === 0 ? "" : `?${query}`;
}

/** Groups of failures: no command groups them. */
export function failuresWays(query: URLSearchParams, root: Root): Way {
  return { title: "These groups", curl: curl(root, `/failures${search(query)}`), link: `${root}failures${search(query)}` };
}

export function groupWays(fingerprint: string, query: URLSearchParams, root: Root): Way[] {
  const part = `/failures/${encodeURIComponent(fingerprint)}`;
  return [
    { title: "This group", curl: curl(root, part + search(query)), link: `${root}${part.slice(1)}${search(query)}` },
    { title: "Retry one as a canary", curl: curl(root, `${part}/canary`, "POST", {}) },
  ];
}

type Declared = Pick<OpsSchedule, "id" | "name" | "key" | "actions">;

export function scheduleListWays(root: Root): Way {
  return {
    title: "These schedules", command: "monque schedules list", python: "schedules = await monque.list_schedules()",
    curl: curl(root, "/schedules"), link: `${root}schedules`,
  };
}

/** One schedule, and what its buttons do. Schedules are found by name and key; the key is the name unless another was given. */
export function scheduleWays(schedule: Declared, root: Root): Way[] {
  const { id, name, key, actions } = schedule;
  const own = key == null || key === name ? undefined : key;
  const words = shell(name) + (own === undefined ? "" : ` --unique-key ${shell(own)}`);
  const given = python(name) + (own === undefined ? "" : `, ${python(own)}`);
  const part = `/schedules/${encodeURIComponent(id)}`;
  const show: Way = {
    title: "This schedule", command: `monque schedules show ${words}`, python: `schedule = await monque.get_schedule(${given})`,
    curl: curl(root, part), link: root + part.slice(1),
  };
  return [show, ...actions.flatMap((action) => {
    const known = ACTIONS[action];
    if (known === undefined) return [];
    const [title, command, call] = known;
    return [{
      title, command: `monque schedules ${command} ${words}`, python: withImports(`await monque.${call}(${given})`),
      curl: action === "delete" ? curl(root, part, "DELETE") : curl(root, `${part}/${action}`, "POST", {}),
    }];
  })];
}

const ACTIONS: Record<string, [title: string, command: string, call: string]> = {
  "run-now": ["Run it now", "trigger", "trigger_schedule"],
  pause: ["Pause it", "pause", "pause_schedule"],
  resume: ["Resume it", "resume", "resume_schedule"],
  delete: ["Delete it", "remove", "unschedule"],
};

export function instancesWays(root: Root): Way {
  return { title: "These instances", command: "monque instances", python: "instances = await monque.instances()", curl: curl(root, "/instances"), link: `${root}instances` };
}

export function instanceWays(id: string, root: Root): Way {
  const query = `?${new URLSearchParams({ id })}`;
  return {
    title: "This instance", python: `instance = next(each for each in await monque.instances() if each.id == ${python(id)})`,
    curl: curl(root, `/instance${query}`), link: `${root}instance${query}`,
  };
}

/** The trail with the filters of its page. */
export function auditWays(query: URLSearchParams, root: Root): Way {
  const given = ["job", "actor", "action"].flatMap((key) => (query.has(key) ? [[key, query.get(key) as string] as const] : []));
  return {
    title: "These entries",
    command: ["monque audit", ...given.map(([key, value]) => `--${key} ${shell(value)}`)].join(" "),
    python: `page = await monque.audit(${given.map(([key, value]) => `${key}=${python(value)}`).join(", ")})`,
    curl: curl(root, `/audit${search(query)}`), link: `${root}audit${search(query)}`,
  };
}
