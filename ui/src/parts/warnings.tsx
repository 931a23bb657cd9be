import type { OpsFinding } from "../api.gen";
import { href } from "../router";
import { shortened, visible } from "../text";

/** What is wrong, before everything else: each with what mends it, and where one sees more. */
export function Warnings({ found }: { found: readonly OpsFinding[] }) {
  if (found.length === 0) return null;
  return (
    <section aria-label="Warnings">
      <ul class="warnings">
        {found.map(({ check, level, message, advice, href: place }) => (
          <li key={check + message} class={`banner ${level === "error" ? "bad" : "warn"}`}>
            <b>{level === "error" ? "✕ Error" : "! Warning"}: {visible(check)}.</b> {visible(shortened(message, 300))}
            {advice != null && ` → ${visible(advice)}`}
            {place != null && <> <a href={href(place)}>Open the {place.split("?")[0]}</a></>}
          </li>
        ))}
      </ul>
    </section>
  );
}
