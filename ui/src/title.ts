// The title of the window: "Failures · Shop", and before it how many fail where something does.
import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { place } from "./router";
import { titleOf } from "./recent";
import { find } from "./screens";
import { me } from "./store";
import { failing } from "./stream";
import { shortened, visible } from "./text";

/** What the screen is about, said by itself; else the place says it. */
const own = signal<string>();

/** Name the window after what the screen shows, such as a job by its name, as long as the screen is there. */
export function useTitle(text: string | undefined): void {
  useEffect(() => {
    own.value = text === undefined ? undefined : visible(shortened(text, 60));
    return () => (own.value = undefined);
  }, [text]);
}

/** Keep the title true. */
export function titleTheWindow(): void {
  effect(() => {
    const { path, query } = place.value;
    // Filters are no title; which queue or instance is shown is one.
    const which = find(path)?.[0].under === undefined ? new URLSearchParams() : query;
    const parts = [own.value ?? titleOf({ path, query: which }), visible(me.value?.title ?? "Monque")];
    const count = failing.value > 0 ? `${failing.value} failing · ` : "";
    document.title = count + parts.filter((each) => each !== undefined).join(" · ");
  });
}
