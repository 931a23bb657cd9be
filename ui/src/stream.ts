// Live numbers, with one stream a browser: HTTP/1.1 allows six connections a host, and a seventh tab would
// hang without a word. The tab that holds the Web Lock reads the stream and passes events on; when it goes,
// the next one takes over. Without Web Locks each tab has a stream, closed while it is hidden.
import { signal } from "@preact/signals";
import { openStream, Problem } from "./api";
import type { OpsActed, OpsTrouble, paths } from "./api.gen";
import { EventParser, type ServerEvent } from "./events";
import { hearDatabase } from "./refusals";
import { base } from "./router";
import { after, whole, type Snapshot } from "./snapshot";

export type Live = "connecting" | "live" | "paused" | "reconnecting" | "offline" | "refused";

export const live = signal<Live>("connecting");
export const snapshot = signal<Snapshot>();
export const trouble = signal<OpsTrouble>();
/** When the last event came, by this browser's clock: ages of what is shown. */
export const heardAt = signal(Date.now());
/** How far the server's clock is ahead of this browser's, in milliseconds. */
export const ahead = signal(0);
/** The last action that somebody took, here or elsewhere. */
export const lastAction = signal<OpsActed>();
/** Set when the server runs another version of the pages than this one. */
export const newVersion = signal(false);
export const paused = signal(false);
/** Runs that failed for good in the last minute; also known in a hidden tab, whose title says it. */
export const failing = signal(0);

type Message =
  | { kind: "event"; event: string; data: string; id: string | undefined }
  | { kind: "state"; live: Live }
  | { kind: "ask" }
  | { kind: "last"; snapshot: Snapshot; id: string | undefined };

// Half of it would hammer a server that restarts; with twice of it, people reload the page.
const LONGEST_PAUSE = 30_000;
// A hidden tab without Web Locks lets go of its connection after this long.
const HIDDEN_FOR = 5_000;
// The server says something at least every 15 s. With less patience, a slow network would look dead.
const SILENCE = 40_000;

const channel = typeof BroadcastChannel === "undefined" ? undefined : new BroadcastChannel(`monque ${base}`);
let lastId: string | undefined;
/** The newest numbers, also while the page is paused. */
let current: Snapshot | undefined;
let assets: string | null | undefined;

/** Begin to listen; call it once. */
export function start(): void {
  document.addEventListener("visibilitychange", publish);
  if (channel !== undefined) {
    channel.addEventListener("message", (event: MessageEvent<Message>) => hear(event.data));
    channel.postMessage({ kind: "ask" } satisfies Message);
  }
  if (navigator.locks !== undefined && channel !== undefined) {
    void navigator.locks.request(`monque ${base}`, () => hold(new AbortController().signal, true));
  } else {
    listenWhileVisible();
  }
}

/** Show nothing new until it is called again. */
export function togglePause(): void {
  paused.value = !paused.value;
  publish();
}

/** Let the page draw the newest numbers. A hidden tab draws nothing. */
function publish(): void {
  if (current === undefined) return;
  failing.value = current.totals.failedPerMin ?? 0;
  if (!paused.value && !document.hidden) snapshot.value = current;
}

function hear(message: Message): void {
  if (message.kind === "event") take(message);
  else if (message.kind === "state") live.value = message.live;
  else if (message.kind === "ask" && current !== undefined && holds) {
    channel?.postMessage({ kind: "last", snapshot: current, id: lastId } satisfies Message);
    channel?.postMessage({ kind: "state", live: live.value } satisfies Message);
  } else if (message.kind === "last" && current === undefined) {
    lastId = message.id;
    current = message.snapshot;
    publish();
    ahead.value = current.at - Date.now();
    trouble.value = current.trouble ?? undefined;
  }
}

let holds = false;

/** Read the stream for all tabs, for as long as this one lives. */
async function hold(stop: AbortSignal, shared: boolean): Promise<void> {
  holds = shared;
  let failures = 0;
  while (!stop.aborted) {
    try {
      await readStream(stop, () => {
        failures = 0;
      });
    } catch (error) {
      if (stop.aborted) break;
      failures += 1;
      const refused = error instanceof Problem && (error.status === 401 || error.status === 403);
      tell(refused ? "refused" : failures < 3 ? "reconnecting" : "offline");
      await pause(failures, stop);
    }
  }
  holds = false;
}

async function readStream(stop: AbortSignal, onEvent: () => void): Promise<void> {
  const silence = new AbortController();
  const response = await openStream(lastId, AbortSignal.any([stop, silence.signal]));
  const reader = (response.body as ReadableStream<Uint8Array>)
    .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>)
    .getReader();
  const parser = new EventParser();
  let timer = setTimeout(() => silence.abort(), SILENCE);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // after some minutes the server ends a stream; we come back at once
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE);
      for (const event of parser.take(value)) {
        onEvent();
        tell("live");
        take(event);
        channel?.postMessage({ kind: "event", ...event } satisfies Message);
      }
    }
  } finally {
    clearTimeout(timer);
    await reader.cancel().catch(() => undefined);
  }
}

function tell(state: Live): void {
  if (live.value === state) return;
  live.value = state;
  channel?.postMessage({ kind: "state", live: state } satisfies Message);
}

function pause(failures: number, stop: AbortSignal): Promise<void> {
  const longest = Math.min(LONGEST_PAUSE, 1000 * 2 ** (failures - 1));
  return new Promise((done) => {
    const timer = setTimeout(done, longest * (0.5 + Math.random() / 2));
    stop.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        done();
      },
      { once: true },
    );
  });
}

function take({ event, data, id }: ServerEvent): void {
  heardAt.value = Date.now();
  lastId = id ?? lastId;
  const told = { event, data: JSON.parse(data) } as Told;
  if (told.event === "hello") {
    newVersion.value = assets !== undefined && assets !== told.data.assets;
    assets ??= told.data.assets;
  } else if (told.event === "action") lastAction.value = told.data;
  else if (told.event === "trouble") trouble.value = told.data;
  else if (told.event === "snapshot") show(whole(told.data));
  // A tab that came late has no snapshot yet: it has asked for one.
  else if (told.event === "delta" && current !== undefined) show(after(current, told.data));
}

type Told = paths["/api/ops/v1/stream"]["get"]["responses"][200]["content"]["text/event-stream"];

function show(newest: Snapshot): void {
  current = newest;
  ahead.value = current.at - Date.now();
  trouble.value = current.trouble ?? undefined;
  if (trouble.value === undefined) hearDatabase();
  publish();
}

function listenWhileVisible(): void {
  let stop = new AbortController();
  let timer = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => stop.abort(), HIDDEN_FOR);
    else if (stop.signal.aborted) {
      stop = new AbortController();
      void hold(stop.signal, false);
    }
  });
  void hold(stop.signal, false);
}
