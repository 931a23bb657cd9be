// What stands around every screen: header, navigation, banner, toasts.
import { useSignal } from "@preact/signals";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Problem } from "./api";
import { Refused } from "./parts/asking";
import { href, place } from "./router";
import { Job } from "./screens/job";
import { Jobs } from "./screens/jobs";
import { Latency } from "./screens/latency";
import { Overview } from "./screens/overview";
import { Queue } from "./screens/queue";
import { Queues } from "./screens/queues";
import { dismiss, identify, me, now, theme, toasts, zone, type Theme } from "./store";
import { heardAt, live, newVersion, paused, snapshot, togglePause, trouble } from "./stream";
import { visible } from "./text";
import { duration } from "./time";

export interface Screen {
  /** Where it is; `{id}` stands for one part of the path, which the view gets. */
  path: string;
  title: string;
  /** The key that leads to it after `g`. */
  key?: string;
  view: ComponentType<{ id: string }>;
  /** For what is not in the navigation itself: the screen that it belongs to. */
  under?: string;
}

/** The screens in the order of the navigation. */
export const SCREENS: readonly Screen[] = [
  { path: "/", title: "Overview", key: "o", view: Overview },
  { path: "/jobs", title: "Jobs", key: "j", view: Jobs },
  { path: "/jobs/{id}", title: "Job", view: Job, under: "/jobs" },
  { path: "/queues", title: "Queues", key: "q", view: Queues },
  { path: "/queue", title: "Queue", view: Queue, under: "/queues" },
  { path: "/latency", title: "Latency", key: "l", view: Latency },
];

/** The screen at a path, and what stands for `{id}` in it. */
function find(path: string): [screen: Screen, id: string] | undefined {
  for (const screen of SCREENS) {
    if (screen.path === path) return [screen, ""];
    const [before = "", behind] = screen.path.split("{id}");
    const id = path.slice(before.length);
    if (behind !== undefined && path.startsWith(before) && id !== "" && !id.includes("/")) return [screen, decoded(id)];
  }
  return undefined;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a lone %: somebody typed the address
  }
}

export function App() {
  const refused = useSignal<Problem | undefined>(undefined);
  const ask = () => {
    identify().then(
      () => (refused.value = undefined),
      (error: unknown) => (refused.value = error instanceof Problem ? error : new Problem(0, "unknown", "Error", String(error))),
    );
  };
  useEffect(ask, []);
  useEffect(() => {
    document.title = titleOf();
  });
  if (me.value === undefined) {
    return <main class="alone">{refused.value !== undefined && <Refused problem={refused.value} again={ask} />}</main>;
  }
  const found = find(place.value.path);
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <Header />
      <Navigation />
      <main id="main" tabIndex={-1}>
        <Banner />
        {found === undefined ? <NotFound /> : <View key={place.value.path} screen={found[0]} id={found[1]} />}
      </main>
      <Toasts />
    </>
  );
}

/** The key of the element makes another thing of the same screen begin anew. */
function View({ screen: { view: Content }, id }: { screen: Screen; id: string }) {
  return <Content id={id} />;
}

function titleOf(): string {
  const title = visible(me.value?.title ?? "Monque");
  const failed = snapshot.value?.totals["failedPerMin"] ?? 0;
  return failed > 0 ? `${failed} failing · ${title}` : title;
}

function Header() {
  const own = me.value;
  return (
    <header>
      <a class="brand" href={href("/")}>{visible(own?.title ?? "Monque")}</a>
      {own?.badge != null && <span class="badge">{visible(own.badge)}</span>}
      <span class="grow" />
      <LiveState />
      <label>
        <span class="hidden-text">Time zone</span>
        <select value={zone.value} onChange={(event) => (zone.value = event.currentTarget.value as "local" | "utc")}>
          <option value="local">local time</option>
          <option value="utc">UTC</option>
        </select>
      </label>
      <label>
        <span class="hidden-text">Theme</span>
        <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
          <option value="system">system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </label>
      <span class="actor">{visible(own?.actor.name ?? "")}</span>
      {own?.readOnly === true && <span class="badge">read-only</span>}
    </header>
  );
}

function LiveState() {
  const age = Math.max(0, now.value - (heardAt.value + (snapshot.value === undefined ? 0 : now.value - Date.now())));
  const words = paused.value ? "paused" : live.value === "reconnecting" || live.value === "offline" ? `${live.value}, ${duration(Math.floor(age / 1000) * 1000)} old` : live.value;
  const slow = snapshot.value !== undefined && snapshot.value.everyMs > 1500 && live.value === "live";
  return (
    <span class={`live live-${paused.value ? "paused" : live.value}`} role="status">
      <button type="button" onClick={togglePause} title="Pause or go on (p)" aria-pressed={paused.value}>{words}</button>
      {slow && <span class="faint"> every {duration(snapshot.value?.everyMs ?? 0)}</span>}
    </span>
  );
}

function Navigation() {
  const here = find(place.value.path)?.[0];
  return (
    <nav aria-label="Screens">
      <ul>
        {SCREENS.filter((screen) => screen.under === undefined).map((screen) => (
          <li key={screen.path}>
            <a href={href(screen.path)} aria-current={here === screen ? "page" : here?.under === screen.path ? "true" : undefined}>{screen.title}</a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Banner() {
  return (
    <>
      {trouble.value !== undefined && (
        <p class="banner bad" role="alert">
          The database does not answer since {duration(Math.max(0, now.value - Date.parse(trouble.value.since)))}: {visible(trouble.value.text)} What is shown is from before.
        </p>
      )}
      {newVersion.value && <p class="banner">A new version of this page is there. <a href={window.location.href} target="_self">Reload</a></p>}
    </>
  );
}

function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast ${toast.tone}`}>
          <span>{toast.text} {toast.link !== undefined && <a href={toast.link.href}>{toast.link.text}</a>}</span>
          <button type="button" aria-label="Close" onClick={() => dismiss(toast.id)}>×</button>
        </div>
      ))}
    </div>
  );
}

function NotFound(): ComponentChildren {
  return (
    <section>
      <h1>There is no such page</h1>
      <p>Nothing is at <code>{visible(place.value.path)}</code>. <a href={href("/")}>To the overview</a></p>
    </section>
  );
}
