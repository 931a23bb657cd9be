// How far back a page looks; it stands in the address.
import { change, place } from "../router";
import { Choice } from "./choice";

export type Window = "15m" | "1h" | "6h" | "24h" | "7d" | "30d";

const WORDS: Record<Window, string> = {
  "15m": "15 min",
  "1h": "1 hour",
  "6h": "6 hours",
  "24h": "24 hours",
  "7d": "7 days",
  "30d": "30 days",
};

/** The window in the address, or this one. */
export function windowOf(fallback: Window = "1h"): Window {
  const given = place.value.query.get("window");
  return given !== null && given in WORDS ? (given as Window) : fallback;
}

/** "the last hour", "the last 6 hours". */
export function lastOf(window: Window): string {
  return `the last ${WORDS[window].replace(/^1 /, "")}`;
}

export function WindowChoice({ fallback = "1h" }: { fallback?: Window }) {
  return (
    <Choice
      label="Look back"
      value={windowOf(fallback)}
      options={Object.entries(WORDS)}
      onChange={(window) => change({ window, from: undefined, to: undefined })}
    />
  );
}
