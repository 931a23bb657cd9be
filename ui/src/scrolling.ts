// Back leads to the place where one was: each entry of the history knows how far it was scrolled.

// While one scrolls, the place is not noted: browsers take a hundred notes in half a minute, no more.
const QUIET = 150;
// A screen that needs longer for its rows has lost its reader.
const PATIENCE = 5_000;

let timer = 0;
let restoring: (() => void) | undefined;

/** Note the place of this entry, before another one comes. */
export function notePlace(): void {
  clearTimeout(timer);
  if (restoring === undefined) history.replaceState({ y: scrollY }, "");
}

/** Go to the place that this entry has, as soon as the screen is long enough for it. */
export function restorePlace(): void {
  restoring?.();
  const y = Number((history.state as { y?: number } | null)?.y ?? 0);
  const reach = () => {
    scrollTo(0, y);
    if (Math.abs(scrollY - y) < 2) restoring?.();
  };
  const watch = new ResizeObserver(reach);
  const end = setTimeout(() => restoring?.(), PATIENCE);
  const hands = ["wheel", "touchmove", "keydown", "pointerdown"] as const;
  restoring = () => {
    watch.disconnect();
    clearTimeout(end);
    for (const hand of hands) removeEventListener(hand, stop);
    restoring = undefined;
  };
  const stop = () => restoring?.();
  for (const hand of hands) addEventListener(hand, stop, { passive: true });
  watch.observe(document.body); // it tells of the first size, too
}

export function keepPlaces(): void {
  history.scrollRestoration = "manual"; // the browser would look for it before the rows are there
  addEventListener("popstate", restorePlace);
  addEventListener(
    "scroll",
    () => {
      clearTimeout(timer);
      timer = setTimeout(notePlace, QUIET);
    },
    { passive: true },
  );
  restorePlace();
}
