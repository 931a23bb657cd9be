// Filters of the list of jobs: as they stand in the address, as people type them, as the API takes them. Pure.
import type { OpsSelection } from "../../api.gen";
import type { Parts } from "../../router";
import { FILTERS, type FilterField } from "../../tables";
import { parsed } from "../../text";
import { parsedDuration, typedDuration } from "./durations";

export type StatusName = NonNullable<OpsSelection["status"]>[number];

/** The filters of the core, and the one that the API adds; `due` has a chip of its own. */
const FIELDS: readonly FilterField[] = [
  ...FILTERS.filter(({ kind }) => kind !== "payload"),
  { key: "failed", kind: "text", label: "failure group", word: "group" },
];
const BY_KEY = new Map(FIELDS.map((field) => [field.key, field]));
/** Those that people type. */
export const TYPED = FIELDS.filter(({ word }) => word);
export const PAYLOAD = "payload.";
const ABOUT_PAGES = ["cursor", "direction", "limit", "sort", "order"];

function isFilter(key: string): boolean {
  return key === "due" || BY_KEY.has(key) || isPath(key);
}

/** The filters in an address, as the body of a bulk action has them. Keys of other screens are left out. */
export function selectionOf(query: URLSearchParams): OpsSelection {
  return Object.fromEntries(
    [...pageQuery(query, undefined, true)].map(([key, value]) => [
      key,
      sent(BY_KEY.get(key)?.kind, value, query.getAll(key)),
    ]),
  );
}

function sent(kind: FilterField["kind"] | undefined, value: string, all: string[]) {
  if (kind === "status" || kind === "ids") return all;
  if (kind === "flag") return value === "true";
  return kind === "number" || isDuration(kind) ? Number(value) : value;
}

/** A bound of a duration: milliseconds in the address, "30s" as people type it. */
function isDuration(kind: FilterField["kind"] | undefined): boolean {
  return kind === "least" || kind === "below";
}

/**
 * The query for the API: the filters in an address, of one name if that is fixed, and which page in which order.
 * Values of payloads stay texts of JSON, as the API takes them: as numbers of this browser, large ones would be others.
 */
export function pageQuery(query: URLSearchParams, name?: string, isCount = false): URLSearchParams {
  const kept = [...query].filter(
    ([key, value]) => value !== "" && (isFilter(key) || (!isCount && ABOUT_PAGES.includes(key))),
  );
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

export const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;
const ID = /^[0-9a-f]{24}$/i;
export const PATH = /^[\w-]+(\.[\w-]+){0,7}$/;

/** What a text means: parts of the address, or a sentence about what cannot be understood. `name` is the one that is chosen already. */
export function parse(text: string, names: readonly string[], name?: string): Parts | string {
  const parts: Parts = Object.fromEntries(TYPED.filter(({ key }) => key !== "name").map(({ key }) => [key, undefined]));
  for (const term of text.match(TERM) ?? []) {
    const problem = add(parts, term, names);
    if (problem !== undefined) return problem;
  }
  const path = Object.keys(parts).find(isPath);
  if (path !== undefined && (parts.name ?? name) === undefined)
    return `To search in payloads, choose a name first: name:send-email ${path}:42`;
  return parts;
}

function add(parts: Parts, term: string, names: readonly string[]): string | undefined {
  const [, word = "", rest = ""] = /^([\w.-]+):(.*)$/s.exec(term) ?? [];
  const value = bare(rest);
  if (word !== "" && value === "") return `What is to be after “${word}:”?`;
  const field = TYPED.find((each) => each.word === word);
  if (field?.kind === "ids" || ID.test(term)) parts.id = [...((parts.id as string[] | undefined) ?? []), value || term];
  else if (field !== undefined) return addValue(parts, field, value);
  else if (isPath(word)) return addPath(parts, word, rest);
  else if (names.includes(bare(term))) parts.name = bare(term);
  else return `“${term}” is no id of a job. Write ${WORDS.join(", ")} or payload.path: before it.`;
  return undefined;
}

const WORDS = TYPED.map(({ word }) => `${word}:`);

function addValue(parts: Parts, field: FilterField, value: string): string | undefined {
  const { key, kind, word, minimum = 0, maximum = 0 } = field;
  const choices = kind === "flag" ? ["true", "false"] : field.choices;
  if (choices?.includes(value) === false) return `Write ${choices.map((each) => `${word}:${each}`).join(" or ")}.`;
  if (kind === "number" && !(/^\d+$/.test(value) && Number(value) >= minimum && Number(value) <= maximum))
    return `Write a number from ${minimum} to ${maximum} after “${word}:”.`;
  if (isDuration(kind)) {
    const ms = parsedDuration(value);
    if (ms === undefined) return `Write a duration after “${word}:”, such as 500ms, 30s, 5m or 2h.`;
    parts[key] = String(ms);
    return undefined;
  }
  parts[key] = value;
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
  if (!text.startsWith('"')) return text;
  const value = parsed(text);
  return typeof value === "string" ? value : text;
}

/** The same text again, for the address; the name has a field of its own. */
export function textOf(query: URLSearchParams): string {
  const terms = query.getAll("id").map((id) => (ID.test(id) ? id : `id:${quoted(id)}`));
  for (const { key, word, kind } of TYPED) {
    const value = query.get(key);
    if (key === "name" || key === "id" || value === null) continue;
    terms.push(`${word}:${isDuration(kind) ? typedDuration(value) : quoted(value)}`);
  }
  for (const [key, text] of query) if (isPath(key)) terms.push(`${key}:${scalar(literal(text))}`);
  return terms.join(" ");
}

export function quoted(text: string): string {
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

/** Each filter in words, so that it can be dropped; `time` writes moments. */
export function filtersOf(query: URLSearchParams, time: (at: string) => string): Filter[] {
  const [status, due] = [query.getAll("status"), query.getAll("due").map((each) => `due ${each}`)];
  const state = [...due, status.join(" or ")].filter(Boolean).join(", ");
  const found = [...new Set(query.keys())]
    .filter((key) => key !== "status" && key !== "due" && isFilter(key))
    .map((key) => ({ keys: [key], words: worded(BY_KEY.get(key), key, query.getAll(key), time) }));
  return state === "" ? found : [{ keys: ["status", "due"], words: state }, ...found];
}

function worded(field: FilterField | undefined, key: string, given: string[], time: (at: string) => string): string {
  const values = given.join(", ");
  if (field === undefined) return `${key} is ${values}`;
  const { kind, label } = field;
  if (kind === "flag") return values === "true" ? label : `not ${label}`;
  if (kind === "number") return `${label} ${values} or higher`;
  if (isDuration(kind)) return `${label} ${typedDuration(values)}`;
  return `${label} ${kind === "since" || kind === "until" ? given.map(time).join(", ") : values}`;
}

// ---- status chips

/** The address after a press on a chip: chips add up, `due` goes with pending jobs alone, and "waiting" with none. */
export function toggled(query: URLSearchParams, status: StatusName): Parts {
  const before = query.getAll("status");
  const after = before.includes(status) ? before.filter((each) => each !== status) : [...before, status];
  const stays = after.length === 1 && after[0] === "pending";
  return {
    status: after,
    cursor: undefined,
    direction: undefined,
    ...(stays ? {} : { due: undefined }),
    ...(query.get("waiting") === "true" ? { waiting: undefined } : {}),
  };
}
