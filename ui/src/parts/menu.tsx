// A button that opens a menu: arrow keys, Home, End and letters move in it, Escape and Tab close it.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Icon, type IconName } from "./icon";
import { useUid } from "./uid";

export interface MenuItem {
  label: string;
  icon?: IconName | undefined;
  tone?: "danger" | undefined;
  /** Of one of some: whether it is the one. */
  checked?: boolean;
  run: () => void;
}

export interface MenuGroup {
  /** Stands above the items. */
  title?: string;
  items: readonly MenuItem[];
}

interface Props {
  /** Names the button and the menu. */
  label: string;
  groups: readonly MenuGroup[];
  /** What the button shows; three dots, unless this is given. */
  children?: ComponentChildren;
  class?: string;
  /** Stands above all items. */
  before?: ComponentChildren;
}

// Between the button and the menu, and between the menu and the edge of the window.
const GAP = 4;

export function Menu({ label, groups, children, class: kind = "bare", before }: Props) {
  const id = useUid();
  const button = useRef<HTMLButtonElement>(null);
  const open = useSignal<"first" | "last">();
  const close = (back: boolean) => {
    open.value = undefined;
    if (back) button.current?.focus();
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class={kind}
        aria-label={label}
        title={children === undefined ? undefined : label}
        aria-haspopup="menu"
        aria-expanded={open.value !== undefined}
        aria-controls={open.value && id}
        onClick={() => (open.value = open.value ? undefined : "first")}
        onKeyDown={(event) => {
          if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
          open.value = event.key === "ArrowDown" ? "first" : "last";
          event.preventDefault();
        }}
      >
        {children ?? <Icon name="more" />}
      </button>
      {open.value && (
        <Items id={id} label={label} groups={groups} before={before} at={open.value} button={button} close={close} />
      )}
    </>
  );
}

interface ItemsProps extends Pick<Props, "label" | "groups" | "before"> {
  id: string;
  at: "first" | "last";
  button: { current: HTMLElement | null };
  close: (back: boolean) => void;
}

function Items({ id, label, groups, before, at, button, close }: ItemsProps) {
  const box = useRef<HTMLDivElement>(null);
  const items = () => [...(box.current?.querySelectorAll<HTMLElement>("button") ?? [])];
  useLayoutEffect(() => {
    const menu = box.current;
    if (menu === null || button.current === null) return;
    menu.showPopover();
    place(menu, button.current.getBoundingClientRect());
    items()
      .at(at === "first" ? 0 : -1)
      ?.focus();
    // What is beside the menu ends it: the button itself does so by its click.
    const away = (event: Event) => {
      const target = event.target as Node;
      if (!menu.contains(target) && !button.current?.contains(target)) close(false);
    };
    document.addEventListener("pointerdown", away);
    addEventListener("scroll", away, true);
    return () => {
      document.removeEventListener("pointerdown", away);
      removeEventListener("scroll", away, true);
    };
  }, []);
  const onKey = (event: KeyboardEvent) => {
    const all = items();
    const here = all.indexOf(document.activeElement as HTMLElement);
    const to =
      { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: -1 }[event.key] ?? byLetter(all, here, event.key);
    if (event.key === "Escape" || event.key === "Tab") close(event.key === "Escape");
    else if (to === undefined) return;
    else all.at(to % all.length)?.focus();
    event.stopPropagation();
    if (event.key !== "Tab") event.preventDefault();
  };
  return (
    <div ref={box} id={id} class="menu" popover="manual" role="menu" aria-label={label} onKeyDown={onKey}>
      {before}
      {groups.map(({ title, items }, at) => (
        <div key={at} role="group" aria-label={title}>
          {title !== undefined && (
            <div class="words" aria-hidden="true">
              {title}
            </div>
          )}
          {items.map(({ label, icon, tone, checked, run }) => (
            <button
              key={label}
              type="button"
              role={checked === undefined ? "menuitem" : "menuitemradio"}
              aria-checked={checked}
              tabIndex={-1}
              class={tone}
              onClick={() => {
                close(true); // first: what the item opens takes the focus, and gives it back to the button
                run();
              }}
            >
              {checked === undefined ? icon && <Icon name={icon} /> : <Mark shown={checked} />}
              {label}
            </button>
          ))}
        </div>
      ))}
    </div>
  );
}

function Mark({ shown }: { shown: boolean }) {
  return shown ? <Icon name="check" /> : <svg class="icon" aria-hidden="true" />;
}

/** The next item that begins with a character. */
function byLetter(all: readonly HTMLElement[], here: number, key: string): number | undefined {
  if (key.length !== 1 || key === " ") return undefined;
  const starts = (item: HTMLElement) => (item.textContent ?? "").toLowerCase().startsWith(key.toLowerCase());
  const next = all.findIndex((item, at) => at > here && starts(item));
  return next >= 0 ? next : all.findIndex(starts) >= 0 ? all.findIndex(starts) : undefined;
}

/** Below the button, its right edge at the button's; above it where there is no room below. */
function place(menu: HTMLElement, button: DOMRect): void {
  const { width, height } = menu.getBoundingClientRect();
  const below = button.bottom + GAP;
  const top = below + height > innerHeight - GAP && button.top > height + GAP ? button.top - GAP - height : below;
  menu.style.left = `${Math.max(GAP, Math.min(button.right - width, innerWidth - width - GAP))}px`;
  menu.style.top = `${Math.max(GAP, Math.min(top, innerHeight - height - GAP))}px`;
}
