// The navigation: screens with what needs a look, and below 800 px a drawer.
import { signal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { OpsGroupList } from "./api.gen";
import { useAnswer } from "./parts/asking";
import { useFresh } from "./parts/fresh";
import { href, place } from "./router";
import { find, SCREENS } from "./screens";
import { may, offers } from "./store";
import { snapshot } from "./stream";
import { count } from "./time";

const isOpen = signal(false);

/** The button that opens the drawer; wide screens have no need of it. */
export function MenuButton() {
  return <button type="button" class="menu" aria-expanded={isOpen.value} aria-controls="nav" onClick={() => (isOpen.value = !isOpen.value)}>☰ Menu</button>;
}

/** The screens that this reader has. */
export function screens() {
  return SCREENS.filter((screen) => screen.under === undefined && (screen.needs === undefined || may(screen.needs)));
}

export function Navigation() {
  const box = useRef<HTMLElement>(null);
  const here = find(place.value.path)?.[0];
  const counts: Record<string, [number, string] | undefined> = { "/failures": useFailed(), "/instances": silent() };
  useSignalEffect(() => {
    if (place.value.path !== "") isOpen.value = false; // whoever went somewhere wants to see it
  });
  useEffect(() => {
    if (isOpen.value) box.current?.querySelector("a")?.focus();
  }, [isOpen.value]);
  return (
    <>
      {isOpen.value && <div class="veil" onClick={() => (isOpen.value = false)} />}
      <nav id="nav" ref={box} aria-label="Screens" class={isOpen.value ? "open" : undefined} onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        isOpen.value = false;
        document.querySelector<HTMLElement>(".menu")?.focus();
      }}>
        <ul>
          {screens().map(({ path, title }) => (
            <li key={path}>
              <a href={href(path)} aria-current={here?.path === path ? "page" : here?.under === path ? "true" : undefined}>{title}<Count found={counts[path]} /></a>
            </li>
          ))}
        </ul>
      </nav>
    </>
  );
}

function Count({ found }: { found: [number: number, words: string] | undefined }) {
  if (found === undefined || found[0] === 0) return null;
  return <span class="count" title={`${found[0]} ${found[1]}`}>{count(found[0])}<span class="hidden-text"> {found[1]}</span></span>;
}

/** Jobs that failed in the last hour and still are. */
function useFailed(): [number, string] | undefined {
  const asked = useAnswer<OpsGroupList>(offers("failures") ? "/failures" : undefined, { window: "1h" });
  useFresh(asked.again, 20_000);
  return asked.answer && [asked.answer.looked, "failed in the last hour"];
}

function silent(): [number, string] {
  const found = [...(snapshot.value?.instances.values() ?? [])].filter((each) => !each.alive && each.state !== "stopped");
  return [found.length, "silent"];
}
