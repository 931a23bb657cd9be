// What stands around every screen: header, navigation, banner, toasts.
import { useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { type Problem, problemOf } from "./api";
import { Help } from "./help";
import { MenuButton, Navigation } from "./nav";
import { Palette } from "./palette";
import { Refused } from "./parts/asking";
import { Choice } from "./parts/choice";
import { href, place } from "./router";
import { find, type Screen } from "./screens";
import type { Snapshot } from "./snapshot";
import { overlay } from "./shortcuts";
import { announce, announced, dismiss, identify, looksOnly, may, me, now, setZone, theme, toasts, zone, type Theme } from "./store";
import { failing, heardAt, live, newVersion, paused, snapshot, togglePause, trouble } from "./stream";
import { plural, visible } from "./text";
import { absolute, duration, type Zone } from "./time";

export function App() {
  const refused = useSignal<Problem>();
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
  useSignalEffect(() => announce(paused.value ? "paused" : live.value));
  if (me.value === undefined) {
    return <main class="alone">{refused.value !== undefined && <Refused problem={refused.value} again={ask} />}</main>;
  }
  const found = find(place.value.path);
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <Header />
      <Navigation />
      <main id="main" tabIndex={-1} class={trouble.value && "old"}>
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
      <span class="hidden-text" role="status">{announced.value}</span>
      <MenuButton />
      <a class="brand" href={href("/")}>{visible(own?.title ?? "Monque")}</a>
      {own?.badge != null && <span class="badge">{visible(own.badge)}</span>}
      <span class="grow" />
      <button type="button" class="search" aria-keyshortcuts="Control+K /" onClick={() => (overlay.value = "palette")}>Search <kbd>Ctrl K</kbd></button>
      <LiveState />
      <Choice quiet label="Time zone" value={zone.value} options={ZONES} onChange={(to) => setZone(to as Zone)} />
      <Choice quiet label="Theme" value={theme.value} options={THEMES} onChange={(to) => (theme.value = to as Theme)} />
      <span class="actor">{visible(own?.actor.name ?? "")}</span>
      {looksOnly() && <span class="badge">read-only: {own?.readOnly ? "nobody may change anything here" : "you may only look"}</span>}
    </header>
  );
}

const ZONES = [["local", "local time"], ["utc", "UTC"]] as const;
const THEMES = [["system", "system"], ["light", "light"], ["dark", "dark"]] as const;

function LiveState() {
  const age = Math.max(0, now.value - (heardAt.value + (snapshot.value === undefined ? 0 : now.value - Date.now())));
  const words = paused.value ? "paused" : live.value === "reconnecting" || live.value === "offline" ? `${live.value}, ${duration(Math.floor(age / 1000) * 1000)} old` : live.value;
  const slow = live.value === "live" && snapshot.value && snapshot.value.everyMs > 1500 && snapshot.value;
  return (
    <span class={`live live-${paused.value ? "paused" : live.value}`}>
      <button type="button" onClick={togglePause} title="Pause or go on (p)" aria-pressed={paused.value}>{words}</button>
      {slow && <span class="faint"> every {Math.round(slow.everyMs / 1000)} s{becauseOf(slow.totals)}</span>}
    </span>
  );
}

// With fewer jobs than this it is not their number that makes the numbers slow to read.
const MANY = 20_000;

function becauseOf({ due, later }: Snapshot["totals"]): string {
  const waiting = (due ?? 0) + (later ?? 0);
  return waiting < MANY ? "" : `, because ${plural(waiting, "job")} wait`;
}

function Banner() {
  return (
    <>
      {trouble.value !== undefined && (
        <p class="banner bad">
          <span role="alert">The database has not answered since {absolute(Date.parse(trouble.value.since), zone.value, now.value)}: {visible(trouble.value.text)}.</span>{" "}
          What is shown is {duration(Math.max(0, now.value - (snapshot.value?.at ?? now.value)))} old.
        </p>
      )}
      {newVersion.value && <p class="banner">There is a new version. <a href={location.href} target="_self">Reload</a></p>}
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
