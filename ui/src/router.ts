// Where we are: the path below the mount point and the query. The whole state of a view is in them.
import { signal } from "@preact/signals";
import { notePlace } from "./scrolling";

export interface Place {
  /** The path below the mount point, such as "/jobs/65f…"; never empty. */
  path: string;
  query: URLSearchParams;
}

/** Where the dashboard is mounted, with a slash at its end: the server wrote it into `<base href>`. */
export const base = new URL(".", document.baseURI).pathname;

export const place = signal<Place>(read());

function read(): Place {
  const { pathname, search } = location;
  const below = pathname.startsWith(base) ? pathname.slice(base.length) : "";
  return { path: `/${below}`, query: new URLSearchParams(search) };
}

export type Parts = Record<string, string | readonly string[] | undefined>;
export type Query = Record<string, Parts[string] | number> | URLSearchParams;

/** A path with its query; parts that are undefined are left out. */
export function withQuery(path: string, query: Query = {}): string {
  const search =
    query instanceof URLSearchParams
      ? query
      : new URLSearchParams(
          Object.entries(query).flatMap(([key, value]) => [value ?? []].flat().map((each) => [key, String(each)])),
        );
  return search.size === 0 ? path : `${path}?${search}`;
}

/** One thing below a path: its id may have any character. */
export function under(path: string, id: string): string {
  return `${path}/${encodeURIComponent(id)}`;
}

/** The address of a view, as links have it. Paths that the server gives begin without a slash. */
export function href(path: string, query: Parts = {}): string {
  // Where the address says whose time is shown, the next view shows it, too.
  return withQuery(base + path.replace(/^\//, ""), {
    ...query,
    zone: query.zone ?? place.value.query.get("zone") ?? undefined,
  });
}

/** Go to a view. To change what the same view shows, replace the entry in the history. */
export function go(address: string, how: "push" | "replace" = "push"): void {
  if (how === "push") notePlace();
  history[`${how}State`](how === "push" ? null : history.state, "", address);
  const before = place.value.path;
  place.value = read();
  if (how === "push" && before !== place.value.path) scrollTo(0, 0);
}

/** A query by its keys. */
export function partsOf(query: URLSearchParams): Parts {
  return Object.fromEntries([...query.keys()].map((key) => [key, query.getAll(key)]));
}

/** Change some parts of the query and stay where we are; undefined removes a part. */
export function change(parts: Parts, how: "push" | "replace" = "push"): void {
  const { path, query } = place.value;
  const after = Object.entries({ ...partsOf(query), ...parts }).filter(([, value]) => value?.length);
  go(href(path, Object.fromEntries(after)), how);
}

/** Follow links inside of the dashboard without loading the page again. */
export function listen(): void {
  addEventListener("popstate", () => {
    place.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return;
    const link = (event.target as Element).closest("a");
    if (
      !link ||
      link.target ||
      link.hasAttribute("download") ||
      link.hash ||
      link.origin !== location.origin ||
      !link.pathname.startsWith(base)
    )
      return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

/** The whole address of the dashboard, for what is copied out of it. */
export function root(): string {
  return location.origin + base;
}
