// What the page shows or does, in other languages: a command, Python, curl, a link. Pure: the address is given.
// Secrets are never in it: curl takes them from $MONQUE_TOKEN.
import type { OpsSelection } from "./api.gen";

export interface Way {
  title: string;
  command?: string;
  python?: string;
  curl?: string;
  link?: string;
}

/** Where the dashboard is, with a slash at its end: "https://ops.example.org/monque/". */
export type Root = string;

/** A text as one word for a shell. */
export function shell(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** A value of JSON as Python writes it. */
export function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, each]) => `${python(key)}: ${python(each)}`).join(", ")}}`;
  return JSON.stringify(value); // texts and numbers are written alike
}

/** A request to the API. */
export function curl(root: Root, path: string, method = "GET", body?: unknown): string {
  const parts = ["curl", "-H \"Authorization: Bearer $MONQUE_TOKEN\""];
  if (method !== "GET") parts.push(`-X ${method}`);
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${shell(JSON.stringify(body))}`);
  return `${parts.join(" ")} ${shell(`${root}api/ops/v1${path}`)}`;
}

const TIMES = [["createdAt", "created"], ["updatedAt", "updated"], ["nextRunAt", "due"]] as const;

/** Filters as options of `monque jobs`; undefined if it has no option for one of them. */
export function options(asked: OpsSelection): string | undefined {
  const { scheduleId, recurring, failed, claimedBy, id } = asked;
  if (![scheduleId, recurring, failed, claimedBy, id].every((each) => each == null)) return undefined;
  const parts: string[] = [];
  if (asked.name != null) parts.push(`--name ${shell(asked.name)}`);
  for (const status of statuses(asked)) parts.push(`--status ${status}`);
  if (asked.uniqueKey != null) parts.push(`--unique-key ${shell(asked.uniqueKey)}`);
  for (const [field, option] of TIMES) {
    const { from, to } = bounds(asked, field);
    if (from !== undefined) parts.push(`--${option}-after ${from}`);
    if (to !== undefined) parts.push(`--${option}-before ${to}`);
  }
  if (asked.due != null) parts.push(`--due-${asked.due === "now" ? "before" : "after"} 0s`);
  for (const [path, value] of Object.entries(asked.payload ?? {})) parts.push(`--payload ${shell(`${path}=${JSON.stringify(value)}`)}`);
  return parts.join(" ");
}

/** Filters as a `JobFilter`; undefined if it has no field for one of them. */
export function jobFilter(asked: OpsSelection): string | undefined {
  if (asked.failed != null) return undefined;
  const parts: string[] = [];
  const add = (field: string, value: unknown) => value == null || parts.push(`${field}=${python(value)}`);
  add("name", asked.name);
  const status = statuses(asked);
  if (status.length > 0) add("status", status);
  add("ids", asked.id);
  add("unique_key", asked.uniqueKey);
  add("claimed_by", asked.claimedBy);
  add("schedule_id", asked.scheduleId);
  add("recurring", asked.recurring);
  for (const [field, option] of TIMES) {
    const { from, to } = bounds(asked, field);
    if (from !== undefined) parts.push(`${option}_after=${moment(from)}`);
    if (to !== undefined) parts.push(`${option}_before=${moment(to)}`);
  }
  if (asked.due != null) parts.push(`due_${asked.due === "now" ? "before" : "after"}=datetime.now(UTC)`);
  add("payload", asked.payload);
  return `JobFilter(${parts.join(", ")})`;
}

function statuses(asked: OpsSelection): readonly string[] {
  return asked.status ?? (asked.due == null ? [] : ["pending"]);
}

/** Times of the API are inclusive, `…_before` of the core is not. */
function bounds(asked: OpsSelection, field: "createdAt" | "updatedAt" | "nextRunAt"): { from: string | undefined; to: string | undefined } {
  const [from, to] = [asked[`${field}From`], asked[`${field}To`]];
  return { from: from ?? undefined, to: to == null ? undefined : new Date(Date.parse(to) + 1).toISOString() };
}

function moment(text: string): string {
  return `datetime.fromisoformat(${python(text)})`;
}

/** The imports that a piece of Python needs, before it. */
export function withImports(code: string): string {
  const lines: string[] = [];
  const times = ["UTC", "datetime", "timedelta"].filter((each) => new RegExp(`\\b${each}\\b`).test(code));
  if (times.length > 0) lines.push(`from datetime import ${times.join(", ")}`);
  if (code.includes("JobFilter(")) lines.push("from monque import JobFilter");
  return [...lines, ...(lines.length > 0 ? [""] : []), code].join("\n");
}

const SORTS: Record<string, string> = { id: "id", createdAt: "created_at", updatedAt: "updated_at", nextRunAt: "next_run_at" };

export interface Listed {
  asked: OpsSelection;
  query: URLSearchParams;
  limit: number;
  sort: string;
  descending: boolean;
}

/** A list of jobs. */
export function listWays(list: Listed, root: Root): Way {
  const { limit, sort, descending } = list;
  const [filters, filter] = [options(list.asked), jobFilter(list.asked)];
  const order = `--sort ${SORTS[sort]}${descending ? " --descending" : ""}`;
  return {
    title: "This list",
    ...(filters === undefined ? {} : { command: ["monque jobs list", filters, `--limit ${limit}`, order].filter(Boolean).join(" ") }),
    ...(filter === undefined ? {} : {
      python: withImports(`page = await monque.list_jobs(${filter}, limit=${limit}, sort=${python(SORTS[sort])}, descending=${python(descending)})`),
    }),
    curl: curl(root, `/jobs${search(list.query)}`),
    link: `${root}jobs${search(list.query)}`,
  };
}

function search(query: URLSearchParams): string {
  return query.size === 0 ? "" : `?${query}`;
}

/** One job: to see it, and why it does not run. */
export function jobWays(id: string, root: Root): Way[] {
  const [word, part] = [shell(id), encodeURIComponent(id)];
  return [
    { title: "This job", command: `monque jobs show ${word}`, python: `job = await monque.get_job(${python(id)})`, curl: curl(root, `/jobs/${part}`), link: `${root}jobs/${part}` },
    { title: "Why it is so", command: `monque jobs why ${word}`, python: `explanation = await monque.explain(${python(id)})`, curl: curl(root, `/jobs/${part}/explanation`) },
  ];
}

/** An action on one job, as its button does it. */
export function actionWays(action: string, id: string, root: Root): Way {
  const part = `/jobs/${encodeURIComponent(id)}`;
  const [command, code, body] = ON_ONE[action] ?? [undefined, undefined, {}];
  return {
    title: TITLES[action] ?? action,
    ...(command === undefined ? {} : { command: `monque jobs ${command} ${shell(id)}` }),
    ...(code === undefined ? {} : { python: withImports(code.replace("ID", python(id))) }),
    curl: action === "delete" ? curl(root, part, "DELETE") : curl(root, `${part}/${action}`, "POST", body),
  };
}

const TITLES: Record<string, string> = { cancel: "Cancel it", retry: "Retry it", "run-now": "Run it now", stop: "Stop it", delete: "Delete it" };
/** Actions on one job that need no argument. */
export const ON_ONE: Record<string, [command: string, python: string, body: unknown]> = {
  cancel: ["cancel", "await monque.cancel_job(ID)", {}],
  retry: ["retry", "await monque.retry_job(ID)", {}],
  "run-now": ["reschedule --delay 0s", "await monque.run_now(ID)", {}],
  stop: ["cancel --running", "await monque.cancel_job(ID, running=True)", {}],
  delete: ["delete", "await monque.delete_job(ID)", {}],
};

export interface Many {
  action: "cancel" | "retry" | "delete" | "stop" | "prioritize";
  target: { ids: readonly string[] } | { filter: OpsSelection };
  asOf: string;
  spreadMs: number;
  priority: number;
}

/** An action on many jobs, as the dialog does it. */
export function bulkWays(many: Many, root: Root): Way {
  const asked = meant(many);
  const command = bulkCommand(many);
  const filter = jobFilter(asked);
  const { action, asOf } = many;
  const extra = { ...(action === "retry" && many.spreadMs > 0 ? { spreadMs: many.spreadMs } : {}), ...(action === "prioritize" ? { priority: many.priority } : {}) };
  return {
    title: "This action",
    ...(command === undefined ? {} : { command }),
    ...(filter === undefined ? {} : { python: withImports(`result = await monque.${bulkCall(many, filter)}`) }),
    curl: curl(root, "/bulk", "POST", { action, ...many.target, asOf, limit: 5000, ...extra }),
  };
}

/** To stop is to cancel what runs, and nothing else. */
function meant({ action, target }: Many): OpsSelection {
  const asked: OpsSelection = "ids" in target ? { id: [...target.ids] } : target.filter;
  return action === "stop" ? { ...asked, status: ["processing"] } : asked;
}

function bulkCommand(many: Many): string | undefined {
  const { action, target, spreadMs, priority } = many;
  if (action === "stop" && "ids" in target) return undefined; // by id, the command would cancel what waits, too
  const verb = { cancel: "cancel", retry: "retry", delete: "delete", stop: "cancel --running", prioritize: `priority ${priority}` }[action];
  const spread = action === "retry" && spreadMs > 0 ? ` --spread ${spreadMs}ms` : "";
  if ("ids" in target) return `monque jobs ${verb}${spread} ${target.ids.map(shell).join(" ")}`;
  const filters = options(meant(many));
  return filters === undefined ? undefined : `monque jobs ${verb}${spread} ${filters === "" ? "--all" : filters}`;
}

function bulkCall({ action, spreadMs, priority }: Many, filter: string): string {
  if (action === "stop") return `cancel_jobs(${filter}, running=True)`;
  if (action === "prioritize") return `set_priorities(${filter}, priority=${priority})`;
  return `${action}_jobs(${filter}${action === "retry" && spreadMs > 0 ? `, spread=timedelta(milliseconds=${spreadMs})` : ""})`;
}
