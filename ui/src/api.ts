// The one place that talks to the server: answers as typed values, refusals as `Problem`.
import type { OpsProblem, paths } from "./api.gen";
import { base, withQuery, type Query } from "./router";
import { hearDatabase, hearRefusal, isLoggedOut } from "./refusals";
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

  /** Whether the same question may be answered in a moment. */
  get passes(): boolean {
    return [0, 502, 503, 504].includes(this.status);
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

/** The address below which the API is. */
export const ROOT = `${base}api/ops/v1`;

interface Kept {
  tag: string;
  body: unknown;
}

// Answers with an ETag, so that a question whose answer has not changed costs a line. Few are open at a time.
const kept = new Map<string, Kept>();
const MOST_KEPT = 50;

type Paths = { [P in keyof paths as P extends `/api/ops/v1${infer Below}` ? Below : never]: paths[P] };
type Change = "POST" | "PUT" | "DELETE";
type Operation<M extends string, P> = P extends keyof Paths
  ? Lowercase<M> extends keyof Paths[P]
    ? Paths[P][Lowercase<M>]
    : never
  : never;
/** The paths that take a method. */
type PathOf<M extends string> = {
  [P in keyof Paths]: Operation<M, P> extends { responses: unknown } ? P : never;
}[keyof Paths];
type AnswerOf<O> = O extends { responses: { 200: { content: { "application/json": infer A } } } } ? A : never;
type BodyOf<O> = O extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;
/** What a path takes: the names in its braces and its query. */
type PartsOf<O> = (O extends { parameters: { path: infer I } } ? I : unknown) &
  (O extends { parameters: { query?: infer Q } } ? ([Q] extends [undefined] ? unknown : Q) : unknown);
/** Filters of payloads have any names, so a whole query may stand in place of its parts. */
type Parts<O> =
  unknown extends PartsOf<O>
    ? []
    : object extends PartsOf<O>
      ? [parts?: PartsOf<O> | URLSearchParams]
      : [parts: PartsOf<O>];

/** The address of a question below the API, which knows the type of its answer. */
export type Address<A> = string & { readonly answer: A };

/** A change to ask for, which knows the types of its body and of its answer. */
export interface Action<B, A> {
  readonly method: Change;
  readonly path: string;
  readonly body?: B;
  readonly answer?: A;
}

/** A question: a path of the API, and what stands in its braces and in its query. */
export function at<P extends PathOf<"GET">>(
  path: P,
  ...[parts]: Parts<Operation<"GET", P>>
): Address<AnswerOf<Operation<"GET", P>>> {
  return filled(path, parts as Query) as Address<AnswerOf<Operation<"GET", P>>>;
}

/** A change: a method and a path of the API, and what stands in its braces. */
export function to<M extends Change, P extends PathOf<M>>(
  method: M,
  path: P,
  ...[parts]: Parts<Operation<M, P>>
): Action<BodyOf<Operation<M, P>>, AnswerOf<Operation<M, P>>> {
  return { method, path: filled(path, parts as Query) };
}

/** The parts that are not in braces are the query. */
function filled(path: string, parts: Query = {}): string {
  if (parts instanceof URLSearchParams) return withQuery(path, parts);
  const rest = { ...parts };
  const address = path.replace(/{(\w+)}/, (_, name: string) => {
    const part = String(rest[name]);
    delete rest[name];
    return encodeURIComponent(part);
  });
  return withQuery(address, rest);
}

/** Ask; the answer may be an earlier one that is still true. */
export async function get<A>(address: Address<A>, signal?: AbortSignal): Promise<A> {
  const before = kept.get(address);
  const response = await send(address, { headers: before && { "if-none-match": before.tag }, signal });
  const body = response.status === 304 && before ? before.body : await answer(response);
  isLoggedOut.value = false;
  if (!address.startsWith("/me")) hearDatabase(); // who we are is known without a database
  if (response.status === 304) return body as A;
  const tag = response.headers.get("etag");
  kept.delete(address);
  if (tag) kept.set(address, { tag, body });
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value as string);
  return body as A;
}

/** Act. `match` is the ETag of what was looked at: if the job changed since, the server refuses with 412. */
export async function act<B, A>(action: Action<B, A>, body: B, match?: string, signal?: AbortSignal): Promise<A> {
  const headers = { "content-type": "application/json", ...(match && { "if-match": match }) };
  const { method, path } = action;
  const response = await send(path, { method, headers, body: JSON.stringify(body), signal });
  kept.clear(); // what was looked at before may have changed
  return (await answer(response)) as A;
}

/** The ETag of the last answer to this question, for `act`. */
export function tagOf(address: string): string | undefined {
  return kept.get(address)?.tag;
}

/** Open the live stream; whoever reads it cancels the body. */
export async function openStream(lastEventId: string | undefined, signal: AbortSignal): Promise<Response> {
  const response = await send("/stream", {
    headers: lastEventId === undefined ? {} : { "last-event-id": lastEventId },
    signal,
  });
  if (!response.ok) await answer(response);
  return response;
}

async function send(path: string, init: Init): Promise<Response> {
  try {
    return await fetch(ROOT + path, { cache: "no-store", ...init } as RequestInit);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Problem(0, "No answer", "The server does not answer.");
  }
}

/** Of a request; what is undefined is as good as not there. */
type Init = { [Key in keyof RequestInit]: RequestInit[Key] | undefined };

async function answer(response: Response): Promise<unknown> {
  const text = await response.text();
  const body = parsed(text);
  if (response.ok) return body;
  const { type, title, detail, errors, requestId } = (body ?? {}) as Partial<OpsProblem>;
  hearRefusal(response.status, type);
  throw new Problem(
    response.status,
    title ?? `HTTP ${response.status}`,
    detail ?? `The server answered ${response.status}.`,
    errors,
    requestId,
  );
}
