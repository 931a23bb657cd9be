import type { OpsGroup } from "../api.gen";
import { TrendBars } from "../charts/bars";
import { href } from "../router";
import { me } from "../store";
import { shortened, visible } from "../text";
import { count } from "../time";
import { When } from "./when";
import { lastOf, type Window } from "./windows";

/** The largest groups of failures, in a few lines each. */
export function Failing({ groups, window, name }: { groups: readonly OpsGroup[]; window: Window; name?: string }) {
  const all = href("/failures", { window, name });
  return (
    <section class="card">
      <div class="bar"><h2>Failing in {lastOf(window)}</h2><span class="grow" /><a href={all}>All groups</a></div>
      {groups.length === 0 && <p class="faint">{me.value?.offers["failures"] === false ? "Failures cannot be listed without the index monque_failed." : "Nothing failed for good."}</p>}
      <ul class="plain-list">{groups.map((group) => <Line key={group.fingerprint} group={group} window={window} />)}</ul>
    </section>
  );
}

function Line({ group, window }: { group: OpsGroup; window: Window }) {
  return (
    <li class="failing">
      <b class="number">{count(group.count)}{group.capped ? "+" : ""}</b>
      <span class="grow">
        <a href={href(`/failures/${encodeURIComponent(group.fingerprint)}`, { window })}>{visible(shortened(group.sentence, 160))}</a>
        {group.isNew && <> <span class="flag bad">new since the last release</span></>}
        <br />
        <span class="faint">{visible(shortened(group.names.join(", "), 80))} · last <When at={group.lastSeen} /></span>
      </span>
      <TrendBars counts={group.trend} tone="failed" what="failure" />
    </li>
  );
}
