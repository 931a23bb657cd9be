// Where we are: the path below the mount point and the query. The whole state of a view is in them.
import { signal } from "@preact/signals";

export interface Place {
  /** The path below the mount point, such as "/jobs/65f…"; never empty. */
  path: string;
  query: URLSearchParams;
}

/** Where the dashboard is mounted, with a slash at its end: the server wrote it into `<base href>`. */
export const base = new URL(document.baseURI).pathname.replace(/[^/]*$/, "");

export const place = signal<Place>(read());

function read(): Place {
  const { pathname, search } = window.location;
  const below = pathname.startsWith(base) ? pathname.slice(base.length) : "";
  return { path: `/${below}`, query: new URLSearchParams(search) };
}

/** The address of a view, as links have it. */
export function href(path: string, query?: Record<string, string | readonly string[] | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query ?? {})) {
    for (const each of value === undefined ? [] : typeof value === "string" ? [value] : value) search.append(key, each);
  }
  const text = search.toString();
  return base + path.replace(/^\//, "") + (text === "" ? "" : `?${text}`);
}

/** Go to a view. To change what the same view shows, replace the entry in the history. */
export function go(address: string, how: "push" | "replace" = "push"): void {
  window.history[how === "push" ? "pushState" : "replaceState"](null, "", address);
  const before = place.value.path;
  place.value = read();
  if (how === "push" && before !== place.value.path) window.scrollTo(0, 0);
}

/** Change some parts of the query and stay where we are; undefined removes a part. */
export function change(parts: Record<string, string | readonly string[] | undefined>, how: "push" | "replace" = "push"): void {
  const query: Record<string, string[]> = {};
  for (const key of new Set(place.value.query.keys())) query[key] = place.value.query.getAll(key);
  for (const [key, value] of Object.entries(parts)) {
    if (value === undefined || value.length === 0) delete query[key];
    else query[key] = typeof value === "string" ? [value] : [...value];
  }
  go(href(place.value.path, query), how);
}

/** Follow links inside of the dashboard without loading the page again. */
export function listen(): void {
  window.addEventListener("popstate", () => {
    place.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.hasAttribute("download") || link.origin !== window.location.origin) return;
    if (!link.pathname.startsWith(base) || link.pathname.startsWith(`${base}api/`) || link.pathname.startsWith(`${base}assets/`)) return;
    if (link.hash !== "" && link.pathname === window.location.pathname) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

/** The whole address of the dashboard, for what is copied out of it. */
export function root(): string {
  return window.location.origin + base;
}
