import type { OpsExplanationAnswer, OpsJobAnswer, OpsRemedy } from "../../api.gen";
import { useAnswer } from "../../parts/asking";
import { Copy } from "../../parts/copy";
import { useFresh } from "../../parts/fresh";
import { href } from "../../router";
import { visible } from "../../text";

/** Why it does not run, or what it does instead: a sentence, what it is known from, and what would help. */
export function Why({ job }: { job: OpsJobAnswer }) {
  const asked = useAnswer<OpsExplanationAnswer>(`/jobs/${encodeURIComponent(job.id)}/explanation`);
  useFresh(asked.again, 5000);
  const found = asked.answer;
  if (found === undefined) return null;
  return (
    <section class="why" aria-labelledby="why">
      <h2 id="why" class="hidden-text">Why</h2>
      <p class="sentence">{visible(found.sentence)} {found.certainty === "likely" && <span class="faint">(likely, not certain)</span>}</p>
      {found.evidence.length > 0 && (
        <dl class="facts">
          {found.evidence.map(({ label, value, href: link }) => (
            <div key={label}><dt>{visible(label)}</dt><dd>{link == null ? visible(value) : <a href={href(link)}>{visible(value)}</a>}</dd></div>
          ))}
        </dl>
      )}
      {found.remedies.length > 0 && <ul class="remedies">{found.remedies.map((remedy) => <li key={remedy.label}><Remedy remedy={remedy} /></li>)}</ul>}
    </section>
  );
}

/** The buttons of the job stand above; here is the command that does the same, or where to look. */
function Remedy({ remedy }: { remedy: OpsRemedy }) {
  return (
    <>
      {remedy.href == null ? visible(remedy.label) : <a href={href(remedy.href)}>{visible(remedy.label)}</a>}
      {remedy.command != null && <> <code>{visible(remedy.command)}</code><Copy text={remedy.command} what="the command" /></>}
    </>
  );
}
