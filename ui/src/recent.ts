// Where this reader has been, for the palette.
import { effect } from "@preact/signals";
import { href, partsOf, place, type Place } from "./router";
import { find } from "./screens";
import { remembered } from "./store";
import { shortened, shortId, visible } from "./text";

export interface Visit {
  title: string;
  /** Below the mount point. */
  path: string;
  query: string;
}

const MOST = 8;
export const recent = remembered<readonly Visit[]>("recent", []);

/** A place in words: "Job …fd64a219", "Queue send-email", "Jobs, status failed". */
export function titleOf({ path, query }: Place): string | undefined {
  const found = find(path);
  if (found === undefined) return undefined;
  const [{ title, under }, id] = found;
  const own = id || (under === undefined ? "" : (query.get("name") ?? query.get("id") ?? ""));
  if (own !== "") return `${title} ${/^[0-9a-f-]{20,}$/.test(own) ? shortId(own) : visible(shortened(own, 60))}`;
  const filters = [...query]
    .filter(([key]) => key !== "cursor" && key !== "direction")
    .map(([key, value]) => `${key} ${visible(shortened(value, 30))}`);
  return [title, ...filters.slice(0, 3)].join(", ");
}

export function rememberPlaces(): void {
  effect(() => {
    const { path, query } = place.value;
    const title = titleOf(place.value);
    if (title === undefined || path === "/") return;
    const visit = { title, path, query: query.toString() };
    const others = recent.peek().filter((each) => each.title !== title);
    recent.value = [visit, ...others].slice(0, MOST);
  });
}

export function visitHref({ path, query }: Visit): string {
  return href(path, partsOf(new URLSearchParams(query)));
}
