import type { ComponentChildren } from "preact";

export interface Tile {
  word: string;
  value: string;
  to: string;
  /** Coloured if it needs a look, or says that something goes on. */
  tone?: "bad" | "warn" | "busy" | undefined;
  more?: ComponentChildren;
}

/** Counts by state, each a link to its list. */
export function Tiles({ tiles }: { tiles: readonly Tile[] }) {
  return (
    <ul class="tiles" aria-label="Jobs by state">
      {tiles.map(({ word, value, to, tone, more = "\u00a0" }) => (
        <li key={word}>
          <a class={tone === undefined ? "tile" : `tile tone-${tone}`} href={to}>
            <span>{word}</span>
            <b>{value}</b>
            <span class="faint">{more}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}
