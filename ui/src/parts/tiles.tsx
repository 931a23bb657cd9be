import type { ComponentChildren } from "preact";

export interface Tile {
  word: string;
  value: string;
  to: string;
  more?: ComponentChildren;
}

/** Counts by state, each a link to its list. */
export function Tiles({ tiles }: { tiles: readonly Tile[] }) {
  return (
    <ul class="tiles" aria-label="Jobs by state">
      {tiles.map(({ word, value, to, more = "\u00a0" }) => (
        <li key={word}><a class="tile" href={to}><span>{word}</span><b>{value}</b><span class="faint">{more}</span></a></li>
      ))}
    </ul>
  );
}
