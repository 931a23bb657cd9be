// Filters of the list of jobs: as they stand in the address, as people type them, as the API takes them. Pure.
import type { OpsSelection } from "../../api.gen";

const STATUSES = ["pending", "processing", "completed", "failed", "cancelled"] as const;
export type StatusName = (typeof STATUSES)[number];

const TEXTS = ["name", "uniqueKey", "claimedBy", "scheduleId", "failed"] as const;
const TIMES = ["createdAtFrom", "createdAtTo", "updatedAtFrom", "updatedAtTo", "nextRunAtFrom", "nextRunAtTo"] as const;
const PAYLOAD = "payload.";
const ABOUT_PAGES = ["cursor", "direction", "limit", "sort", "order"];

/** The filters in an address, as the body of a bulk action has them. Keys of other screens are left out. */
export function selectionOf(query: URLSearchParams): OpsSelection {
  const asked: OpsSelection = {};
  for (const key of [...TEXTS, ...TIMES]) {
    const value = query.get(key);
    if (value !== null && value !== "") asked[key] = value;
  }
  const status = query.getAll("status").filter((each): each is StatusName => STATUSES.includes(each as StatusName));
  if (status.length > 0) asked.status = status;
  if (query.has("id")) asked.id = query.getAll("id");
  const due = query.get("due");
  if (due === "now" || due === "later") asked.due = due;
  const recurring = query.get("recurring");
  if (recurring !== null) asked.recurring = recurring === "true";
  const paths = [...query].filter(([key]) => key.startsWith(PAYLOAD));
  if (paths.length > 0) asked.payload = Object.fromEntries(paths.map(([key, text]) => [key.slice(PAYLOAD.length), json(text)]));
  return asked;
}

/** The query for the API. */
export function queryOf(asked: OpsSelection): URLSearchParams {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(asked)) {
    if (key === "payload") for (const [path, scalar] of Object.entries(value as object)) query.append(PAYLOAD + path, JSON.stringify(scalar));
    else if (Array.isArray(value)) for (const each of value) query.append(key, String(each));
    else if (value !== null && value !== undefined) query.append(key, String(value));
  }
  return query;
}

/** The query for a page: the filters, and which page in which order. */
export function pageQuery(query: URLSearchParams, fixed: OpsSelection = {}): URLSearchParams {
  const page = queryOf({ ...selectionOf(query), ...fixed });
  for (const key of ABOUT_PAGES) {
    const value = query.get(key);
    if (value !== null && value !== "") page.set(key, value);
  }
  return page;
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// ---- what people type

const WORDS: Record<string, string> = { name: "name", key: "uniqueKey", on: "claimedBy", schedule: "scheduleId", group: "failed" };
const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;
const ID = /^[0-9a-f]{24}$/i;
const PATH = /^[\w-]+(\.[\w-]+){0,7}$/;

/** Parts of an address; undefined removes one. */
export type Parts = Record<string, string | string[] | undefined>;

/** What a text means: parts of the address, or a sentence about what cannot be understood. */
export function parse(text: string, names: readonly string[]): Parts | string {
  const parts: Parts = { id: undefined, uniqueKey: undefined, claimedBy: undefined, scheduleId: undefined, failed: undefined };
  for (const term of text.match(TERM) ?? []) {
    const problem = add(parts, term, names);
    if (problem !== undefined) return problem;
  }
  return parts;
}

function add(parts: Parts, term: string, names: readonly string[]): string | undefined {
  const [, word = "", rest = ""] = /^([\w.-]+):(.*)$/s.exec(term) ?? [];
  const value = bare(rest);
  if (word !== "" && value === "") return `What is to be after “${word}:”?`;
  if (word in WORDS) parts[WORDS[word] as string] = value;
  else if (word.startsWith(PAYLOAD)) return addPath(parts, word, rest);
  else if (word === "id" || ID.test(term)) parts["id"] = [...((parts["id"] as string[] | undefined) ?? []), value || term];
  else if (names.includes(bare(term))) parts["name"] = bare(term);
  else return `“${term}” is no id of a job, which has 24 hex characters. Write name:, key:, on:, schedule: or payload.path: before it.`;
  return undefined;
}

function addPath(parts: Parts, word: string, rest: string): string | undefined {
  if (!PATH.test(word.slice(PAYLOAD.length))) return `“${word}” is no path. Write for example payload.customer.id:42`;
  const value = json(rest);
  if (typeof value === "object" && value !== null) return `${word} takes a text, a number, true, false or null.`;
  parts[word] = JSON.stringify(value);
  return undefined;
}

function bare(text: string): string {
  if (!text.startsWith("\"")) return text;
  const value = json(text);
  return typeof value === "string" && value !== text ? value : text;
}

/** The same text again, for the address; the name has a field of its own. */
export function textOf(query: URLSearchParams): string {
  const terms = query.getAll("id").map((id) => (ID.test(id) ? id : `id:${quoted(id)}`));
  for (const [word, key] of Object.entries(WORDS)) {
    const value = query.get(key);
    if (key !== "name" && value !== null) terms.push(`${word}:${quoted(value)}`);
  }
  for (const [key, text] of query) if (key.startsWith(PAYLOAD)) terms.push(`${key}:${scalar(json(text))}`);
  return terms.join(" ");
}

function quoted(text: string): string {
  return /[\s"]/.test(text) || text === "" ? JSON.stringify(text) : text;
}

/** A text that could be taken for a number or the like keeps its quotes. */
function scalar(value: unknown): string {
  return typeof value === "string" && json(value) === value ? quoted(value) : JSON.stringify(value);
}

// ---- filters one by one

export interface Filter {
  /** The parts of the address to drop. */
  keys: string[];
  words: string;
}

const NAMED: Record<string, string> = {
  name: "name", uniqueKey: "unique key", claimedBy: "on", scheduleId: "schedule", failed: "failure group",
  createdAtFrom: "created since", createdAtTo: "created until", updatedAtFrom: "changed since", updatedAtTo: "changed until",
  nextRunAtFrom: "due since", nextRunAtTo: "due until",
};

/** Each filter in words, so that it can be dropped; `time` writes moments. */
export function filtersOf(query: URLSearchParams, time: (at: string) => string): Filter[] {
  const asked = selectionOf(query);
  const found: Filter[] = [];
  if (asked.status != null) found.push({ keys: ["status", "due"], words: `${asked.due == null ? "" : `due ${asked.due}, `}${asked.status.join(" or ")}` });
  else if (asked.due != null) found.push({ keys: ["due"], words: `due ${asked.due}` });
  if (asked.id != null) found.push({ keys: ["id"], words: asked.id.length === 1 ? `id ${asked.id[0]}` : `${asked.id.length} ids` });
  for (const [key, words] of Object.entries(NAMED)) {
    const value = query.get(key);
    if (value !== null && value !== "") found.push({ keys: [key], words: `${words} ${TIMES.includes(key as never) ? time(value) : value}` });
  }
  if (asked.recurring != null) found.push({ keys: ["recurring"], words: asked.recurring ? "recurring" : "not recurring" });
  for (const [path, value] of Object.entries(asked.payload ?? {})) found.push({ keys: [PAYLOAD + path], words: `${PAYLOAD}${path} is ${JSON.stringify(value)}` });
  return found;
}

// ---- status chips

/** The address after a press on a chip: chips add up, and `due` goes with pending jobs alone. */
export function toggled(query: URLSearchParams, status: StatusName): Parts {
  const before = query.getAll("status");
  const after = before.includes(status) ? before.filter((each) => each !== status) : [...before, status];
  const stays = after.length === 1 && after[0] === "pending";
  return { status: after, cursor: undefined, direction: undefined, ...(stays ? {} : { due: undefined }) };
}
