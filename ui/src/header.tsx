// The header: where we are, search, how fresh the numbers are, and one menu for what a reader prefers.
import { MenuButton } from "./nav";
import { outage } from "./outage";
import { Icon } from "./parts/icon";
import { Menu, type MenuGroup } from "./parts/menu";
import { href } from "./router";
import { overlay } from "./shortcuts";
import type { Snapshot } from "./snapshot";
import { looksOnly, me, now, setZone, theme, zone, type Theme } from "./store";
import { heardAt, live, paused, snapshot, togglePause } from "./stream";
import { plural, visible } from "./text";
import { age, type Zone } from "./time";

export function Header() {
  const own = me.value;
  return (
    <header>
      <MenuButton />
      <a class="brand" href={href("/")}>
        <Logo />
        <span>{visible(own?.title ?? "Monque")}</span>
      </a>
      {own?.badge != null && <span class="badge">{visible(own.badge)}</span>}
      {looksOnly() && <span class="badge">read-only{!own?.readOnly && " for you"}</span>}
      <span class="grow" />
      <button type="button" class="search" aria-keyshortcuts="Control+K /" onClick={() => (overlay.value = "palette")}>
        <Icon name="search" label="Search" />
        <span aria-hidden="true">Search</span> <kbd>Ctrl K</kbd>
      </button>
      <LiveState />
      <Preferences />
    </header>
  );
}

function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent)" />
      <path
        d="M8 23V10l8 8 8-8v13"
        fill="none"
        stroke="var(--ground)"
        stroke-width="3.2"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}

const ZONES: readonly (readonly [Zone, string])[] = [
  ["local", "Local time"],
  ["utc", "UTC"],
];
const THEMES: readonly (readonly [Theme, string])[] = [
  ["system", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

/** Time zone, theme, shortcuts, and who this is. */
function Preferences() {
  const name = visible(me.value?.actor.name ?? "");
  const groups: MenuGroup[] = [
    {
      title: "Time zone",
      items: ZONES.map(([value, label]) => ({ label, checked: zone.value === value, run: () => setZone(value) })),
    },
    {
      title: "Theme",
      items: THEMES.map(([value, label]) => ({
        label,
        checked: theme.value === value,
        run: () => (theme.value = value),
      })),
    },
    { items: [{ label: "Shortcuts, about Monque", icon: "info", run: () => (overlay.value = "keys") }] },
  ];
  return (
    <Menu
      label="Preferences"
      groups={groups}
      before={
        name !== "" && (
          <div class="person">
            Signed in as <b>{name}</b>
          </div>
        )
      }
    >
      <Icon name="user" />
    </Menu>
  );
}

function LiveState() {
  const heard = Math.max(0, now.value - (heardAt.value + (snapshot.value === undefined ? 0 : now.value - Date.now())));
  const state = paused.value ? "paused" : outage.value && live.value !== "offline" ? "database" : live.value;
  const words =
    state === "database" && outage.value
      ? `no database, ${age(now.value - outage.value.since)}`
      : state === "reconnecting" || state === "offline"
        ? `${state}, ${age(heard)} old`
        : state === "refused"
          ? "logged out"
          : state;
  const slow = state === "live" && snapshot.value && snapshot.value.everyMs > 1500 && snapshot.value;
  return (
    <span class={`live live-${state}`}>
      {slow && (
        <span class="faint small">
          every {Math.round(slow.everyMs / 1000)} s{becauseOf(slow.totals)}
        </span>
      )}
      <button
        type="button"
        onClick={togglePause}
        title="Pause or resume the live numbers (p)"
        aria-pressed={paused.value}
      >
        {words}
      </button>
    </span>
  );
}

// With fewer jobs than this it is not their number that makes the numbers slow to read.
const MANY = 20_000;

function becauseOf({ due, later }: Snapshot["totals"]): string {
  const waiting = (due ?? 0) + (later ?? 0);
  return waiting < MANY ? "" : `, because ${plural(waiting, "job")} wait`;
}
