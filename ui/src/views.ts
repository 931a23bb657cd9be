// Lists of jobs that a reader has saved under a name, in this browser.
import { computed } from "@preact/signals";
import type { Visit } from "./recent";
import { base, place } from "./router";
import { remembered } from "./store";
import { parsed } from "./text";

// Dashboards of one host share its storage.
const KEY = `views ${base}`;
const stored = remembered<unknown>(KEY, []);

// What another tab has saved would be lost with the next one that is saved here.
addEventListener("storage", ({ key, newValue }) => {
  if (key === `monque ${KEY}`) stored.value = parsed(newValue ?? "[]");
});

/** The saved views by their titles; what other versions or hands have stored may have any shape. */
export const views = computed(() =>
  (Array.isArray(stored.value) ? (stored.value as (Visit | null)[]) : []).filter(
    (each): each is Visit => typeof each?.title === "string" && typeof each.query === "string",
  ),
);

/** The filters and the order in the address; neither the page of the list nor whose time is shown. */
export function queryHere(): string {
  const query = new URLSearchParams(place.value.query);
  for (const key of ["cursor", "direction", "zone"]) query.delete(key);
  query.sort();
  return query.toString();
}

/** Save these filters in the place of what has this title, or had it before. */
export function saveView(title: string, query: string, before?: string): void {
  const others = views.peek().filter((each) => each.title !== title && each.title !== before);
  stored.value = [...others, { title, path: "/jobs", query }].sort((a, b) => a.title.localeCompare(b.title));
}

export function deleteView(title: string): void {
  stored.value = views.peek().filter((each) => each.title !== title);
}
