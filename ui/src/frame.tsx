// What stands around every screen: header, navigation, banner, toasts.
import { useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { type Problem, problemOf } from "./api";
import { Help } from "./help";
import { MenuButton, Navigation } from "./nav";
import { Palette } from "./palette";
import { Refused } from "./parts/asking";
import { href, place } from "./router";
import { find, type Screen } from "./screens";
import { overlay } from "./shortcuts";
import { dismiss, identify, may, me, now, theme, toasts, zone, type Theme } from "./store";
import { failing, heardAt, live, newVersion, paused, snapshot, togglePause, trouble } from "./stream";
import { visible } from "./text";
import { duration } from "./time";

export function App() {
  const refused = useSignal<Problem | undefined>(undefined);
  const ask = () => {
    identify().then(
      () => (refused.value = undefined),
      (error: unknown) => (refused.value = problemOf(error)),
    );
  };
  useEffect(ask, []);
  useSignalEffect(() => {
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
      {overlay.value === "palette" && <Palette />}
      {overlay.value === "keys" && <Help />}
    </>
  );
}

/** The key of the element makes another thing of the same screen begin anew. */
function View({ screen: { view: Content, needs, title }, id }: { screen: Screen; id: string }) {
  if (needs !== undefined && !may(needs)) return <section><h1>{title}</h1><p class="empty">You may not see this.</p></section>;
  return <Content id={id} />;
}

function titleOf(): string {
  const title = visible(me.value?.title ?? "Monque");
  return failing.value > 0 ? `${failing.value} failing · ${title}` : title;
}

function Header() {
  const own = me.value;
  return (
    <header>
      <MenuButton />
      <a class="brand" href={href("/")}>{visible(own?.title ?? "Monque")}</a>
      {own?.badge != null && <span class="badge">{visible(own.badge)}</span>}
      <span class="grow" />
      <button type="button" class="search" aria-keyshortcuts="Control+K /" onClick={() => (overlay.value = "palette")}>Search <kbd>Ctrl K</kbd></button>
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
