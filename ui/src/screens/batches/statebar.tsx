// Jobs by their states as one bar, with the numbers in words below it.
import type { OpsBatchStates } from "../../api.gen";
import "./batches.css";
import { count } from "../../time";

type State = keyof OpsBatchStates;

const STATES: readonly [state: State, word: string, tone: string][] = [
  ["completed", "completed", "completed"],
  ["failed", "failed", "failed"],
  ["cancelled", "cancelled", "cancelled"],
  ["processing", "running", "running"],
  ["pending", "pending", "waiting"],
];

interface Props {
  states: OpsBatchStates;
  /** Where the jobs of a state are. */
  link?: (state: State) => string;
}

export function StateBar({ states, link }: Props) {
  const shown = STATES.filter(([state]) => states[state] > 0);
  const words = shown.map(([state, word]) => `${count(states[state])} ${word}`).join(", ");
  return (
    <>
      <div class="state-bar" role="img" aria-label={words || "no jobs"}>
        {shown.map(([state, , tone]) => (
          <span key={state} class={tone} style={{ flexGrow: states[state] }} />
        ))}
      </div>
      <ul class="state-key small">
        {shown.map(([state, word, tone]) => (
          <li key={state}>
            <span class={tone} aria-hidden="true" />
            {link === undefined ? (
              `${count(states[state])} ${word}`
            ) : (
              <a href={link(state)}>
                {count(states[state])} {word}
              </a>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}
