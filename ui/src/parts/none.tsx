/** Stands where there is no value; a card on a small screen leaves it out. */
export function None() {
  return <span class="none">–</span>;
}
