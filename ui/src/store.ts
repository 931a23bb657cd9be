// What the whole page shares: who we are, what this reader prefers, what was said last.
import { computed, effect, signal, type Signal } from "@preact/signals";
import type { OpsMe } from "./api.gen";
import { at, get } from "./api";
import { change, place } from "./router";
import { ahead } from "./stream";
import { parsed, shortened } from "./text";
import type { Zone } from "./time";

export const me = signal<OpsMe>();

/** Ask who we are and what there is; every view needs it. */
export async function identify(): Promise<void> {
  me.value = await get(at("/me"));
}

/** Whether this reader may do this. */
export function may(action: string): boolean {
  return me.value?.actions.includes(action as never) ?? false;
}

/** Whether this reader may change nothing. */
export function looksOnly(): boolean {
  return me.value?.actions.every((action) => ["read", "payload", "audit"].includes(action)) ?? false;
}

/** Whether there is such a thing here. */
export function offers(what: string): boolean {
  return me.value?.offers[what] ?? false;
}

// ---- preferences, kept in this browser where it allows that

export type Theme = "system" | "light" | "dark";

/** A value of any shape that this browser remembers; one that cannot be read is the fallback. */
export function remembered<T>(key: string, fallback: T): Signal<T> {
  const value = signal((parsed(readStored(key) ?? "") ?? fallback) as T);
  effect(() => writeStored(key, JSON.stringify(value.value)));
  return value;
}

function readStored(key: string): string | null {
  try {
    return localStorage.getItem(`monque ${key}`);
  } catch {
    return null; // private windows and strict policies have no storage
  }
}

function writeStored(key: string, value: string): void {
  try {
    localStorage.setItem(`monque ${key}`, value);
  } catch {
    // The preference lasts as long as the page.
  }
}

export const theme = remembered<Theme>("theme", "system");
export const shortcuts = remembered<"on" | "off">("shortcuts", "on");
const usualZone = remembered<Zone>("zone", "local");

/** In whose time moments are shown: as the address says, else as this reader chose last. */
export const zone = computed(() => (place.value.query.get("zone") ?? usualZone.value) as Zone);

/** Who gets the address sees the same times. */
export function setZone(to: Zone): void {
  usualZone.value = to;
  change({ zone: to }, "replace");
}

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

// ---- the server's clock, ticking once a second for all ages on the page

const tick = signal(Date.now());
setInterval(() => {
  if (!document.hidden) tick.value = Date.now();
}, 1000);

/** The server's time, to the second. */
export const now = computed(() => tick.value + ahead.value);

// ---- for those who do not see the page

/** What screen readers say. */
export const announced = signal("");
const LEAST_BETWEEN = 10_000;
let announcedAt = 0;
let waiting = 0;

/** Say something, at most once in ten seconds: of what comes meanwhile, the newest. */
export function announce(text: string): void {
  clearTimeout(waiting);
  waiting = setTimeout(
    () => {
      announcedAt = Date.now();
      announced.value = text;
    },
    Math.max(0, announcedAt + LEAST_BETWEEN - Date.now()),
  );
}

// ---- toasts

export interface Toast {
  id: number;
  tone: "good" | "bad" | "plain";
  text: string;
  link?: { href: string; text: string };
}

export const toasts = signal<readonly Toast[]>([]);
let lastToast = 0;
// Some lines: names and keys of any length stand in them.
const LONGEST_TOAST = 400;

/** Say something for some seconds; bad news stay until they are closed. */
export function say(toast: Omit<Toast, "id">): void {
  const id = ++lastToast;
  toasts.value = [...toasts.value, { ...toast, text: shortened(toast.text, LONGEST_TOAST), id }].slice(-4);
  if (toast.tone !== "bad") setTimeout(() => dismiss(id), 8000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}
