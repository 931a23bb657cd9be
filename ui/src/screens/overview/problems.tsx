// What is wrong, the worst first: one line of state, and a row for each cause with its button.
import type { OpsTroubled } from "../../api.gen";
import { Icon } from "../../parts/icon";
import { PauseButton } from "../../parts/pausing";
import { href } from "../../router";
import { may } from "../../store";
import { plural, shortened, visible } from "../../text";

interface Props {
  found: readonly OpsTroubled[];
  /** How many queues there are. */
  queues: number;
  done: () => void;
}

export function Problems({ found, queues, done }: Props) {
  const [worst, ...others] = found;
  if (worst === undefined)
    return (
      <p class="verdict well" role="status">
        <Icon name="completed" />
        <b>All well</b>
        <span class="faint">{plural(queues, "queue")}, nothing stands in the way</span>
      </p>
    );
  return (
    <section aria-label="Problems">
      <p class={`verdict ${worst.level}`} role="status">
        <Icon name="silent" />
        <b>{others.length === 0 ? "1 problem" : `${found.length} problems, the worst first`}</b>
      </p>
      <ul class="problems">
        {found.map((each) => (
          <Row key={each.cause + each.message} problem={each} done={done} />
        ))}
      </ul>
    </section>
  );
}

function Row({ problem, done }: { problem: OpsTroubled; done: () => void }) {
  const { cause, level, message, advice, name } = problem;
  const place = problem.href ?? (name === null || problem.resumes ? undefined : "queue");
  return (
    <li class={level}>
      <Icon name={cause === "paused" ? "paused" : level === "error" ? "failed" : "silent"} label={level} />
      <span class="grow">
        {visible(shortened(message, 300))}
        {advice != null && <span class="faint"> {visible(sentence(advice))}</span>}
      </span>
      {problem.resumes && may("pause") ? (
        <PauseButton name={name} verb="Resume" done={done} />
      ) : (
        place !== undefined && (
          <a class="button" href={href(place, { name: place === "queue" && name !== null ? name : undefined })}>
            Open<span class="hidden-text"> {name === null ? visible(place.split("?")[0] ?? "") : visible(name)}</span>
          </a>
        )
      )}
    </li>
  );
}

/** Advice as a sentence of its own. */
function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}
