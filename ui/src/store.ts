// What the whole page shares: who we are, what this reader prefers, what was said last.
import { computed, effect, signal, type Signal } from "@preact/signals";
import type { OpsMe } from "./api.gen";
import { get } from "./api";
import { ahead } from "./stream";
import type { Zone } from "./time";

export const me = signal<OpsMe | undefined>(undefined);

/** Ask who we are and what there is; every view needs it. */
export async function identify(): Promise<void> {
  me.value = await get<OpsMe>("/me");
}

/** Whether this reader may do this. */
export function may(action: string): boolean {
  return me.value?.actions.includes(action as never) ?? false;
}

// ---- preferences, kept in this browser where it allows that

export type Theme = "system" | "light" | "dark";

function preference<T extends string>(key: string, fallback: T, known: readonly T[]) {
  const stored = readStored(key);
  const value = signal<T>(known.includes(stored as T) ? (stored as T) : fallback);
  effect(() => writeStored(key, value.value));
  return value;
}

/** A value of any shape that this browser remembers; one that cannot be read is the fallback. */
export function remembered<T>(key: string, fallback: T): Signal<T> {
  const value = signal<T>(parsed(readStored(key)) ?? fallback);
  effect(() => writeStored(key, JSON.stringify(value.value)));
  return value;
}

function parsed(text: string | null): any {
  try {
    return text === null ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

function readStored(key: string): string | null {
  try {
    return window.localStorage.getItem(`monque ${key}`);
  } catch {
    return null; // private windows and strict policies have no storage
  }
}

function writeStored(key: string, value: string): void {
  try {
    window.localStorage.setItem(`monque ${key}`, value);
  } catch {
    // The preference lasts as long as the page.
  }
}

export const theme = preference<Theme>("theme", "system", ["system", "light", "dark"]);
export const zone = preference<Zone>("zone", "local", ["local", "utc"]);
export const shortcuts = preference<"on" | "off">("shortcuts", "on", ["on", "off"]);

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
});

// ---- the server's clock, ticking once a second for all ages on the page

const tick = signal(Date.now());
window.setInterval(() => {
  if (!document.hidden) tick.value = Date.now();
}, 1000);

/** The server's time, to the second. */
export const now = computed(() => tick.value + ahead.value);

// ---- toasts

export interface Toast {
  id: number;
  tone: "good" | "bad" | "plain";
  text: string;
  link?: { href: string; text: string };
}

export const toasts = signal<readonly Toast[]>([]);
let lastToast = 0;

/** Say something for some seconds; bad news stay until they are closed. */
export function say(toast: Omit<Toast, "id">): void {
  const id = ++lastToast;
  toasts.value = [...toasts.value, { ...toast, id }].slice(-4);
  if (toast.tone !== "bad") window.setTimeout(() => dismiss(id), 8000);
}

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}
