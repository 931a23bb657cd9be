// The navigation: screens with what needs a look, and below 800 px a drawer.
import { signal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Icon } from "./parts/icon";
import { href, place } from "./router";
import { find, SCREENS } from "./screens";
import { may } from "./store";
import { snapshot } from "./stream";
import { count } from "./time";

const isOpen = signal(false);

/** The button that opens the drawer; wide screens have no need of it. */
export function MenuButton() {
  return (
    <button
      type="button"
      class="drawer bare"
      aria-label="Menu"
      aria-expanded={isOpen.value}
      aria-controls="nav"
      onClick={() => (isOpen.value = !isOpen.value)}
    >
      <Icon name="menu" />
    </button>
  );
}

/** The screens that this reader has. */
export function screens() {
  return SCREENS.filter((screen) => screen.under === undefined && (screen.needs === undefined || may(screen.needs)));
}

export function Navigation() {
  const box = useRef<HTMLElement>(null);
  const here = find(place.value.path)?.[0];
  const counts: Record<string, [number, string] | undefined> = { "/failures": failed(), "/instances": silent() };
  useSignalEffect(() => {
    if (place.value.path !== "") isOpen.value = false; // whoever went somewhere wants to see it
  });
  useEffect(() => {
    if (isOpen.value) box.current?.querySelector("a")?.focus();
  }, [isOpen.value]);
  return (
    <>
      {isOpen.value && <div class="veil" onClick={() => (isOpen.value = false)} />}
      <nav
        id="nav"
        ref={box}
        aria-label="Screens"
        class={isOpen.value ? "open" : undefined}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          isOpen.value = false;
          document.querySelector<HTMLElement>(".drawer")?.focus();
        }}
      >
        <ul>
          {screens().map(({ path, title, icon }) => (
            <li key={path}>
              <a
                href={href(path)}
                aria-current={here?.path === path ? "page" : here?.under === path ? "true" : undefined}
              >
                {icon && <Icon name={icon} />}
                <span class="name" title={title}>
                  {title}
                </span>
                <Count found={counts[path]} />
              </a>
            </li>
          ))}
        </ul>
      </nav>
    </>
  );
}

function Count({ found }: { found: [number: number, words: string] | undefined }) {
  if (found === undefined || found[0] === 0) return null;
  return (
    <span class="count" title={`${found[0]} ${found[1]}`}>
      {count(found[0])}
      <span class="hidden-text"> {found[1]}</span>
    </span>
  );
}

/** Jobs that are failed now, as everywhere. */
function failed(): [number, string] {
  return [snapshot.value?.totals.failed ?? 0, "failed now"];
}

function silent(): [number, string] {
  const found = [...(snapshot.value?.instances.values() ?? [])].filter(
    (each) => !each.alive && each.state !== "stopped",
  );
  return [found.length, "silent"];
}
