// Why something waits: a sentence, what it is known from, and what would help.
import type { OpsEvidence, OpsExplanation, OpsRemedy } from "../api.gen";
import { href } from "../router";
import { now, zone } from "../store";
import { visible } from "../text";
import { localized } from "../time";
import { Copy } from "./copy";
import { Facts } from "./facts";
import { When } from "./when";

interface Props {
  why: OpsExplanation;
  /** What a remedy's action does on this page; others show their command. */
  actions?: Record<string, () => void>;
}

export function Explained({ why, actions = {} }: Props) {
  // A text that the sentence has in full, such as an error, is not told twice.
  const evidence = why.evidence.filter(({ value }) => value.length < 20 || !why.sentence.includes(value));
  return (
    <section class="why" aria-labelledby="why">
      <h2 id="why" class="hidden-text">
        Why
      </h2>
      <p class="sentence">
        {visible(localized(why.sentence, zone.value, now.value))}{" "}
        {why.certainty === "likely" && <span class="faint">(likely, not certain)</span>}
      </p>
      {evidence.length > 0 && (
        <Facts
          of={evidence.map((each) => [
            visible(each.label),
            each.href == null ? (
              <Fact of={each} />
            ) : (
              <a href={href(each.href)}>
                <Fact of={each} />
              </a>
            ),
          ])}
        />
      )}
      {why.remedies.length > 0 && (
        <ul class="remedies">
          {why.remedies.map((remedy) => (
            <li key={remedy.label}>
              <Remedy remedy={remedy} run={actions[remedy.action ?? ""]} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** A moment in the reader's time, else the text. */
function Fact({ of: { at, value } }: { of: OpsEvidence }) {
  return at == null ? (
    visible(value)
  ) : (
    <>
      <When at={at} as="absolute" /> (<When at={at} />)
    </>
  );
}

/** A button where the page can act, else the command that does the same, or where to look. */
function Remedy({ remedy, run }: { remedy: OpsRemedy; run: (() => void) | undefined }) {
  if (run !== undefined)
    return (
      <button type="button" onClick={run}>
        {visible(remedy.label)}
      </button>
    );
  return (
    <>
      {remedy.href == null ? visible(remedy.label) : <a href={href(remedy.href)}>{visible(remedy.label)}</a>}
      {remedy.command != null && (
        <>
          {" "}
          <code>{visible(remedy.command)}</code>
          <Copy text={remedy.command} what="the command" />
        </>
      )}
    </>
  );
}
