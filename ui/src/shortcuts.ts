// Keys for fast hands. None of them destroys anything; they are off in fields and dialogs, and can be switched off.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { screens } from "./nav";
import { go, href } from "./router";
import { shortcuts } from "./store";
import { togglePause } from "./stream";

/** What lies over the page. */
export const overlay = signal<"palette" | "keys">();

/** A dialog that was opened from the palette. */
export const dialog = signal<ComponentChildren>();

/** Something that can be done here; it opens a dialog. */
export interface Verb {
  label: string;
  run: () => void;
}

/** The verbs of the job that is open, or of the jobs that are selected. */
export const verbs = signal<readonly Verb[]>([]);

/** Offer these verbs as long as the part of the page that calls it is there. */
export function useVerbs(offered: readonly Verb[]): void {
  useEffect(() => {
    verbs.value = offered;
    return () => (verbs.value = []);
  });
}

export const KEYS: readonly [keys: string, words: string][] = [
  ["Ctrl K, ⌘ K", "go anywhere, find anything"],
  ["/", "search"],
  ["j, k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  [".", "show what is new in the list"],
  ["p", "pause or resume the live numbers"],
  ["?", "this list"],
];

// Longer ago and somebody has changed their mind.
const PATIENCE = 1_500;
let wentAt = 0;

export function listenKeys(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key.toLowerCase() !== "k") return;
      overlay.value = overlay.value === "palette" ? undefined : "palette";
    } else if (shortcuts.value === "off" || isBusy(event.target) || !pressed(event.key)) return;
    event.preventDefault();
  });
}

function isBusy(target: EventTarget | null): boolean {
  return (
    document.querySelector("dialog[open]") !== null ||
    (target instanceof Element &&
      target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null)
  );
}

/** Do what the key stands for; false if it stands for nothing. */
function pressed(key: string): boolean {
  const isSecond = Date.now() - wentAt < PATIENCE;
  wentAt = key === "g" ? Date.now() : 0;
  if (key === "g") return true;
  const screen = isSecond ? screens().find((each) => each.key === key) : undefined;
  if (screen !== undefined) go(href(screen.path));
  else if (DEEDS[key] === undefined) return false;
  else DEEDS[key]();
  return true;
}

const DEEDS: Record<string, () => void> = {
  "?": () => (overlay.value = "keys"),
  "/": search,
  p: togglePause,
  j: () => step(1),
  k: () => step(-1),
  x: () => row()?.querySelector<HTMLElement>("[data-select]")?.click(),
  ".": () => document.querySelector<HTMLElement>("main [data-key='.']")?.click(),
};

function search(): void {
  const field = document.querySelector<HTMLElement>("main [data-find]");
  if (field !== null) field.focus();
  else overlay.value = "palette";
}

function row(): Element | null {
  return document.activeElement?.closest("main tbody tr") ?? null;
}

/** To the link of the next row that has one. */
function step(by: 1 | -1): void {
  const links = [...document.querySelectorAll("main tbody tr")].flatMap((each) => linkOf(each) ?? []);
  const here = links.findIndex((link) => link.closest("tr") === row());
  const next = links[here < 0 ? 0 : Math.min(links.length - 1, Math.max(0, here + by))];
  next?.focus();
}

function linkOf(row: Element): HTMLElement | null {
  return row.querySelector<HTMLElement>("[data-open]") ?? row.querySelector<HTMLElement>("th a, a");
}
