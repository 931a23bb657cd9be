/** A button that goes takes the focus with it, to nowhere: let the content have it. */
export function keepFocus(): void {
  let last: Element | null = null;
  addEventListener("focusin", () => (last = document.activeElement));
  new MutationObserver(() => {
    if (last === null || last.isConnected || document.activeElement !== document.body) return;
    last = null;
    document.getElementById("main")?.focus({ preventScroll: true });
  }).observe(document.body, { childList: true, subtree: true });
}
