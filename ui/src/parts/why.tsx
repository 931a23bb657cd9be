// Why something waits: a sentence, what it is known from, and what helps.
import type { OpsEvidence, OpsExplanation, OpsRemedy } from "../api.gen";
import { base } from "../router";
import { visible } from "../text";
import { Copy } from "./copy";

interface Given {
  why: OpsExplanation;
  /** What a remedy's action does on this page; a remedy without one shows its command. */
  actions?: Record<string, (() => void) | undefined>;
}

export function Why({ why, actions = {} }: Given) {
  return (
    <section class="banner why" aria-label="Why">
      <p><strong>{visible(why.sentence)}</strong>{why.certainty === "likely" && <span class="faint"> (likely; not all instances report)</span>}</p>
      {why.evidence.length > 0 && <dl class="evidence">{why.evidence.map((each) => <Fact key={each.label} fact={each} />)}</dl>}
      {why.remedies.length > 0 && <ul class="remedies">{why.remedies.map((each) => <li key={each.label}><Remedy remedy={each} run={actions[each.action ?? ""]} /></li>)}</ul>}
    </section>
  );
}

function Fact({ fact: { label, value, href } }: { fact: OpsEvidence }) {
  const text = visible(value);
  return <div><dt>{visible(label)}</dt><dd>{href == null ? text : <a href={base + href}>{text}</a>}</dd></div>;
}

function Remedy({ remedy: { label, href, command }, run }: { remedy: OpsRemedy; run: (() => void) | undefined }) {
  if (run !== undefined) return <button type="button" onClick={run}>{visible(label)}</button>;
  if (href != null) return <a href={base + href}>{visible(label)}</a>;
  if (command == null) return <>{visible(label)}</>;
  return <>{visible(label)}: <code>{visible(command)}</code> <Copy text={command} what="the command" label="Copy" /></>;
}
