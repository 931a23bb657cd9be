// Filters of the list of jobs: as they stand in the address, as people type them, as the API takes them. Pure.
import type { OpsSelection } from "../../api.gen";
import type { Parts } from "../../router";
import { parsed } from "../../text";

export type StatusName = NonNullable<OpsSelection["status"]>[number];

const TIMES = ["createdAtFrom", "createdAtTo", "updatedAtFrom", "updatedAtTo", "nextRunAtFrom", "nextRunAtTo"];
const FILTERS = ["name", "status", "id", "uniqueKey", "claimedBy", "scheduleId", "failed", "due", "recurring", ...TIMES];
const PAYLOAD = "payload.";
const ABOUT_PAGES = ["cursor", "direction", "limit", "sort", "order"];

function isFilter(key: string): boolean {
  return FILTERS.includes(key) || isPath(key);
}

/** The filters in an address, as the body of a bulk action has them. Keys of other screens are left out. */
export function selectionOf(query: URLSearchParams): OpsSelection {
  return Object.fromEntries([...pageQuery(query, undefined, true)].map(([key, value]) => [
    key, key === "status" || key === "id" ? query.getAll(key) : key === "recurring" ? value === "true" : value,
  ]));
}

/**
 * The query for the API: the filters in an address, of one name if that is fixed, and which page in which order.
 * Values of payloads stay texts of JSON, as the API takes them: as numbers of this browser, large ones would be others.
 */
export function pageQuery(query: URLSearchParams, name?: string, isCount = false): URLSearchParams {
  const kept = [...query].filter(([key, value]) => value !== "" && (isFilter(key) || (!isCount && ABOUT_PAGES.includes(key))));
  const page = new URLSearchParams(kept.map(([key, value]) => [key, isPath(key) ? literal(value) : value]));
  if (name !== undefined) page.set("name", name);
  return page;
}

function isPath(key: string): boolean {
  return key.startsWith(PAYLOAD);
}

/** A text that is no JSON stands for itself. */
function literal(text: string): string {
  return parsed(text) === undefined ? JSON.stringify(text) : text;
}

// ---- what people type

const WORDS: Record<string, string> = { name: "name", key: "uniqueKey", on: "claimedBy", schedule: "scheduleId", group: "failed" };
const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;
const ID = /^[0-9a-f]{24}$/i;
const PATH = /^[\w-]+(\.[\w-]+){0,7}$/;


/** What a text means: parts of the address, or a sentence about what cannot be understood. `name` is the one that is chosen already. */
export function parse(text: string, names: readonly string[], name?: string): Parts | string {
  const parts: Parts = { id: undefined, uniqueKey: undefined, claimedBy: undefined, scheduleId: undefined, failed: undefined };
  for (const term of text.match(TERM) ?? []) {
    const problem = add(parts, term, names);
    if (problem !== undefined) return problem;
  }
  const path = Object.keys(parts).find(isPath);
  if (path !== undefined && (parts["name"] ?? name) === undefined) return `To search in payloads, choose a name first: name:send-email ${path}:42`;
  return parts;
}

function add(parts: Parts, term: string, names: readonly string[]): string | undefined {
  const [, word = "", rest = ""] = /^([\w.-]+):(.*)$/s.exec(term) ?? [];
  const value = bare(rest);
  if (word !== "" && value === "") return `What is to be after “${word}:”?`;
  if (word in WORDS) parts[WORDS[word] as string] = value;
  else if (isPath(word)) return addPath(parts, word, rest);
  else if (word === "id" || ID.test(term)) parts["id"] = [...((parts["id"] as string[] | undefined) ?? []), value || term];
  else if (names.includes(bare(term))) parts["name"] = bare(term);
  else return `“${term}” is no id of a job. Write name:, key:, on:, schedule: or payload.path: before it.`;
  return undefined;
}

function addPath(parts: Parts, word: string, rest: string): string | undefined {
  if (!PATH.test(word.slice(PAYLOAD.length))) return `“${word}” is no path. Write for example payload.customer.id:42`;
  const value = literal(rest);
  if (/^[[{]/.test(value)) return `${word} takes a single value.`;
  parts[word] = value;
  return undefined;
}

function bare(text: string): string {
  if (!text.startsWith("\"")) return text;
  const value = parsed(text);
  return typeof value === "string" ? value : text;
}

/** The same text again, for the address; the name has a field of its own. */
export function textOf(query: URLSearchParams): string {
  const terms = query.getAll("id").map((id) => (ID.test(id) ? id : `id:${quoted(id)}`));
  for (const [word, key] of Object.entries(WORDS)) {
    const value = query.get(key);
    if (key !== "name" && value !== null) terms.push(`${word}:${quoted(value)}`);
  }
  for (const [key, text] of query) if (isPath(key)) terms.push(`${key}:${scalar(literal(text))}`);
  return terms.join(" ");
}

function quoted(text: string): string {
  return /[\s"]/.test(text) || text === "" ? JSON.stringify(text) : text;
}

/** A text that could be taken for a number or the like keeps its quotes. */
function scalar(text: string): string {
  const value = parsed(text);
  return typeof value === "string" && parsed(value) === undefined ? quoted(value) : text;
}

// ---- filters one by one

export interface Filter {
  /** The parts of the address to drop. */
  keys: string[];
  words: string;
}

const NAMED: Record<string, string> = {
  name: "name", uniqueKey: "unique key", claimedBy: "on", scheduleId: "schedule", failed: "failure group", id: "id", recurring: "recurring",
  createdAtFrom: "created since", createdAtTo: "created until", updatedAtFrom: "changed since", updatedAtTo: "changed until",
  nextRunAtFrom: "due since", nextRunAtTo: "due until",
};

/** Each filter in words, so that it can be dropped; `time` writes moments. */
export function filtersOf(query: URLSearchParams, time: (at: string) => string): Filter[] {
  const [status, due] = [query.getAll("status"), query.getAll("due").map((each) => `due ${each}`)];
  const state = [...due, status.join(" or ")].filter(Boolean).join(", ");
  const found = [...new Set(query.keys())].filter((key) => key in NAMED || isPath(key)).map((key) => {
    const values = query.getAll(key).map((each) => (TIMES.includes(key) ? time(each) : each)).join(", ");
    return { keys: [key], words: `${NAMED[key] ?? `${key} is`} ${values}` };
  });
  return state === "" ? found : [{ keys: ["status", "due"], words: state }, ...found];
}

// ---- status chips

/** The address after a press on a chip: chips add up, and `due` goes with pending jobs alone. */
export function toggled(query: URLSearchParams, status: StatusName): Parts {
  const before = query.getAll("status");
  const after = before.includes(status) ? before.filter((each) => each !== status) : [...before, status];
  const stays = after.length === 1 && after[0] === "pending";
  return { status: after, cursor: undefined, direction: undefined, ...(stays ? {} : { due: undefined }) };
}
