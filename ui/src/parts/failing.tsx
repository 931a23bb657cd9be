import type { OpsGroup } from "../api.gen";
import { TrendBars } from "../charts/bars";
import { href, under } from "../router";
import { offers } from "../store";
import { shortened, visible } from "../text";
import { count } from "../time";
import { IsNew } from "../screens/failures";
import { When } from "./when";
import type { Range } from "./throughput";
import { lastOf, type Window } from "./windows";

/** The largest groups of failures, in a few lines each; without groups, no index leads to failures. */
export function Failing({ groups, window, name, range }: { groups: readonly OpsGroup[] | null | undefined; window: Window; name?: string; range?: Range }) {
  const all = href("/failures", { window, name, ...range });
  return (
    <section class="card">
      <div class="bar"><h2>{range ? "Failed in this time" : `Failing in ${lastOf(window)}`}</h2><span class="grow" /><a href={all}>All groups</a></div>
      {groups?.length === 0 && <p class="faint">Nothing failed for good.</p>}
      {groups == null && <p class="faint">{offers("failures") ? "The index of failures is being prepared." : "Failures cannot be listed without the index monque_failed."}</p>}
      <ul>{groups?.map((group) => <Line key={group.fingerprint} group={group} window={window} />)}</ul>
    </section>
  );
}

function Line({ group, window }: { group: OpsGroup; window: Window }) {
  return (
    <li class="failing">
      <b class="number">{count(group.count)}{group.capped ? "+" : ""}</b>
      <span class="grow">
        <a href={href(under("/failures", group.fingerprint), { window })}>{visible(shortened(group.sentence, 160))}</a>
        <IsNew group={group} />
        <br />
        <span class="faint">{visible(shortened(group.names.join(", "), 80))} · last <When at={group.lastSeen} /></span>
      </span>
      <TrendBars counts={group.trend} tone="failed" what="failure" />
    </li>
  );
}
