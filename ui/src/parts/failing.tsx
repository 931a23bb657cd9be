import type { ComponentChildren } from "preact";
import type { OpsGroup } from "../api.gen";
import { TrendBars } from "../charts/bars";
import { href, under } from "../router";
import { offers } from "../store";
import { shortened, visible } from "../text";
import { count } from "../time";
import { When } from "./when";
import type { Range } from "./throughput";
import { lastOf, type Window } from "./windows";

/** The largest groups of failures, in a few lines each; without groups, no index leads to failures. */
export function Failing({
  groups,
  window,
  name,
  range,
  more,
}: {
  groups: readonly OpsGroup[] | null | undefined;
  window: Window;
  name?: string;
  range?: Range;
  /** What stands behind a group, such as a button. */
  more?: (group: OpsGroup) => ComponentChildren;
}) {
  const all = href("/failures", { window, name, ...range });
  return (
    <section class="card">
      <div class="bar">
        <h2>{range ? "Failed in this time" : `Failed now, from ${lastOf(window)}`}</h2>
        <span class="grow" />
        <a href={all}>All groups</a>
      </div>
      {groups?.length === 0 && <p class="faint">No failed job is left.</p>}
      {groups == null && (
        <p class="faint">
          {offers("failures") ? "The index of failures is being prepared." : "The index monque_failed is missing."}
        </p>
      )}
      {!!groups?.length && (
        <ul>
          {groups.map((group) => (
            <Line key={group.fingerprint} group={group} window={window} more={more} />
          ))}
        </ul>
      )}
    </section>
  );
}

interface LineProps {
  group: OpsGroup;
  window: Window;
  more: ((group: OpsGroup) => ComponentChildren) | undefined;
}

function Line({ group, window, more }: LineProps) {
  return (
    <li class="failing">
      <b class="number">
        {count(group.count)}
        {group.capped ? "+" : ""}
      </b>
      <span class="grow">
        <a href={href(under("/failures", group.fingerprint), { window })}>{visible(shortened(group.sentence, 160))}</a>
        <IsNew group={group} />
        <br />
        <span class="faint">
          {visible(shortened(group.names.join(", "), 80))} · last <When at={group.lastSeen} />
        </span>
      </span>
      <TrendBars counts={group.trend} tone="failed" what="failure" />
      {more?.(group)}
    </li>
  );
}

/** "new since release 4f2a" */
export function IsNew({ group: { newSince } }: { group: OpsGroup }) {
  return newSince == null ? null : (
    <>
      {" "}
      <span class="flag bad">new since release {shortened(visible(newSince), 16)}</span>
    </>
  );
}

/** A group's share of all failures. */
export function share(group: OpsGroup): string {
  const percent = group.share * 100;
  return `${percent > 0 && percent < 1 ? "<\u00a01" : Math.round(percent)}\u00a0%`;
}
