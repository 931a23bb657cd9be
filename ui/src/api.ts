// The one place that talks to the server: answers as typed values, refusals as `Problem`.
import { base } from "./router";

/** What the server says when it does not do what was asked (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly slug: string,
    readonly title: string,
    detail: string,
    readonly errors: readonly { where: string; what: string }[] = [],
    readonly requestId: string | undefined = undefined,
  ) {
    super(detail);
  }
}

/** Whatever was thrown, as a problem that can be shown. */
export function problemOf(error: unknown): Problem {
  return error instanceof Problem ? error : new Problem(0, "unknown", "Error", String(error));
}

const ROOT = `${base}api/ops/v1`;

interface Kept {
  tag: string;
  body: unknown;
}

// Answers with an ETag, so that a question whose answer has not changed costs a line. Few are open at a time.
const kept = new Map<string, Kept>();
const MOST_KEPT = 50;

/** Ask; the answer may be an earlier one that is still true. */
export async function get<T>(path: string, query?: URLSearchParams, signal?: AbortSignal): Promise<T> {
  const address = ROOT + path + (query === undefined || query.size === 0 ? "" : `?${query}`);
  const before = kept.get(address);
  const headers: Record<string, string> = { accept: "application/json" };
  if (before !== undefined) headers["if-none-match"] = before.tag;
  const response = await send(address, { headers, ...(signal === undefined ? {} : { signal }) });
  if (response.status === 304 && before !== undefined) return before.body as T;
  const body = await answer(response);
  const tag = response.headers.get("etag");
  kept.delete(address);
  if (tag !== null) keep(address, { tag, body });
  return body as T;
}

function keep(address: string, answer: Kept): void {
  kept.set(address, answer);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value as string);
}

/** Act. `match` is the ETag of what was looked at: if the job changed since, the server refuses with 412. */
export async function act<T>(
  method: "POST" | "PUT" | "DELETE", path: string, body?: unknown, match?: string, signal?: AbortSignal,
): Promise<T> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (match !== undefined) headers["if-match"] = match;
  const response = await send(ROOT + path, {
    method, headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(signal === undefined ? {} : { signal }),
  });
  kept.clear(); // what was looked at before may have changed
  return (await answer(response)) as T;
}

/** The ETag of the last answer for this question, for `act`. */
export function tagOf(path: string): string | undefined {
  return kept.get(ROOT + path)?.tag;
}

/** Open the live stream; whoever reads it cancels the body. */
export async function openStream(lastEventId: string | undefined, signal: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (lastEventId !== undefined) headers["last-event-id"] = lastEventId;
  const response = await send(`${ROOT}/stream`, { headers, signal });
  if (!response.ok) await answer(response);
  return response;
}

async function send(address: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(address, { cache: "no-store", credentials: "same-origin", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "No answer", "The server does not answer. It may be restarting, or the network is away.");
  }
}

async function answer(response: Response): Promise<unknown> {
  const text = await response.text();
  let body: any;
  try {
    body = text === "" ? undefined : JSON.parse(text);
  } catch {
    body = undefined;
  }
  if (response.ok) return body;
  throw new Problem(
    response.status,
    String(body?.type ?? "").replace("urn:monque:problem:", "") || "unknown",
    String(body?.title ?? `HTTP ${response.status}`),
    String(body?.detail ?? body?.error ?? `The server answered ${response.status}.`),
    Array.isArray(body?.errors) ? body.errors : [],
    body?.requestId,
  );
}
