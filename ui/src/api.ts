// The one place that talks to the server: answers as typed values, refusals as `Problem`.
import { base } from "./router";
import { parsed, visible } from "./text";

/** What the server says when it does not do what was asked (RFC 9457). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    detail: string,
    readonly errors: readonly { where: string; what: string }[] = [],
    readonly requestId: string | undefined = undefined,
  ) {
    super(detail);
  }

  /** What there is to say about it. */
  get sentence(): string {
    return `${this.title}. ${visible(this.message)}`;
  }
}

/** Whatever was thrown, as a problem that can be shown. */
export function problemOf(error: unknown): Problem {
  return error instanceof Problem ? error : new Problem(0, "Error", String(error));
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
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const before = kept.get(path);
  const response = await send(path, { headers: before && { "if-none-match": before.tag }, signal });
  if (response.status === 304 && before) return before.body as T;
  const body = await answer(response);
  const tag = response.headers.get("etag");
  kept.delete(path);
  if (tag) kept.set(path, { tag, body });
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value as string);
  return body as T;
}

/** Act. `match` is the ETag of what was looked at: if the job changed since, the server refuses with 412. */
export async function act<T>(method: "POST" | "PUT" | "DELETE", path: string, body: unknown, match?: string, signal?: AbortSignal): Promise<T> {
  const headers = { "content-type": "application/json", ...(match && { "if-match": match }) };
  const response = await send(path, { method, headers, body: JSON.stringify(body), signal });
  kept.clear(); // what was looked at before may have changed
  return (await answer(response)) as T;
}

/** The ETag of the last answer for this question, for `act`. */
export function tagOf(path: string): string | undefined {
  return kept.get(path)?.tag;
}

/** Open the live stream; whoever reads it cancels the body. */
export async function openStream(lastEventId: string | undefined, signal: AbortSignal): Promise<Response> {
  const response = await send("/stream", { headers: lastEventId === undefined ? {} : { "last-event-id": lastEventId }, signal });
  if (!response.ok) await answer(response);
  return response;
}

async function send(path: string, init: Parts): Promise<Response> {
  try {
    return await fetch(ROOT + path, { cache: "no-store", ...init } as RequestInit);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "No answer", "The server does not answer.");
  }
}

/** Of a request; what is undefined is as good as not there. */
type Parts = { [Key in keyof RequestInit]: RequestInit[Key] | undefined };

async function answer(response: Response): Promise<unknown> {
  const text = await response.text();
  const body: any = parsed(text);
  if (response.ok) return body;
  throw new Problem(
    response.status, body?.title ?? `HTTP ${response.status}`, body?.detail ?? `The server answered ${response.status}.`, body?.errors, body?.requestId,
  );
}
