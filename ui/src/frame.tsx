// What stands around every screen: header, navigation, banner, toasts.
import { useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { type Problem, problemOf } from "./api";
import { Header } from "./header";
import { Help } from "./help";
import { Lazy } from "./lazy";
import { Navigation } from "./nav";
import { Palette } from "./palette";
import { outage } from "./outage";
import { Refused, Skeleton } from "./parts/asking";
import { Icon } from "./parts/icon";
import { LogIn } from "./parts/login";
import { isLoggedOut } from "./refusals";
import { href, place } from "./router";
import { find, type Screen } from "./screens";
import { dialog, overlay } from "./shortcuts";
import { announce, announced, dismiss, identify, may, me, now, toasts, zone } from "./store";
import { live, newVersion, paused, snapshot } from "./stream";
import { visible } from "./text";
import { absolute, age } from "./time";

export function App() {
  const refused = useSignal<Problem>();
  const ask = () => {
    identify().then(
      () => (refused.value = undefined),
      (error: unknown) => (refused.value = problemOf(error)),
    );
  };
  useEffect(ask, []);
  useEffect(() => {
    if (!refused.value?.passes) return;
    const timer = setInterval(ask, AGAIN_AFTER);
    return () => clearInterval(timer);
  }, [refused.value?.passes]);
  useSignalEffect(() => announce(paused.value ? "paused" : live.value));
  const found = find(place.value.path);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Header />
      <Navigation />
      <main id="main" tabIndex={-1} class={outage.value && "old"}>
        <Banner />
        {me.value === undefined ? (
          <Entering title={found?.[0].title ?? "Monque"} refused={refused.value} again={ask} />
        ) : found === undefined ? (
          <NotFound />
        ) : (
          <View key={place.value.path} screen={found[0]} id={found[1]} />
        )}
      </main>
      <span class="hidden-text" role="status">
        {announced.value}
      </span>
      <Toasts />
      {overlay.value === "palette" && <Palette />}
      {overlay.value === "keys" && <Help />}
      {dialog.value}
    </>
  );
}

// The frame asks again who we are, until somebody answers.
const AGAIN_AFTER = 3_000;

/** The place of a screen, until it is known who we are. */
function Entering({ title, refused, again }: { title: string; refused: Problem | undefined; again: () => void }) {
  return (
    <section>
      <h1>{title}</h1>
      {refused === undefined ? <Skeleton /> : <Refused problem={refused} again={again} />}
    </section>
  );
}

/** The key of the element makes another thing of the same screen begin anew. */
function View({ screen: { load, needs, title }, id }: { screen: Screen; id: string }) {
  if (needs !== undefined && !may(needs))
    return (
      <section>
        <h1>{title}</h1>
        <p class="empty">You may not see this.</p>
      </section>
    );
  return <Lazy title={title} load={load} id={id} />;
}

function Banner() {
  return (
    <>
      {isLoggedOut.value && me.value !== undefined && (
        <p class="banner bad bar">
          <span role="alert">Your session has ended.</span> <LogIn />
        </p>
      )}
      {outage.value !== undefined && me.value !== undefined && (
        <p class="banner bad">
          <span role="alert">
            The database has not answered since {absolute(outage.value.since, zone.value, now.value)}
            {outage.value.text !== undefined && `: ${visible(outage.value.text)}`}.
          </span>
          {snapshot.value !== undefined && <> The numbers are {age(now.value - snapshot.value.at)} old.</>}
        </p>
      )}
      {newVersion.value && (
        <p class="banner">
          There is a new version.{" "}
          <a href={location.href} target="_self">
            Reload
          </a>
        </p>
      )}
    </>
  );
}

function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast ${toast.tone}`}>
          <span>
            {toast.text} {toast.link !== undefined && <a href={toast.link.href}>{toast.link.text}</a>}
          </span>
          <button type="button" class="bare" aria-label="Close" onClick={() => dismiss(toast.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}

function NotFound(): ComponentChildren {
  return (
    <section>
      <h1>There is no such page</h1>
      <p>
        Nothing is at <code>{visible(place.value.path)}</code>. <a href={href("/")}>Open the overview</a>
      </p>
    </section>
  );
}
