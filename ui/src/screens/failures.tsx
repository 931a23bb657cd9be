// Failures in groups: what looks alike is one error.
import { useMemo } from "preact/hooks";
import { at } from "../api";
import type { OpsGroup, OpsGroupList } from "../api.gen";
import { TrendBars } from "../charts/bars";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { IsNew, share } from "../parts/failing";
import { useFresh } from "../parts/fresh";
import { NameField } from "../parts/namefield";
import { Table, type Column } from "../parts/table";
import { When } from "../parts/when";
import { RangeNote, rangeOf } from "../parts/throughput";
import { lastOf, WindowChoice, windowOf, type Window } from "../parts/windows";
import { href, place, under } from "../router";
import { plural, shortened, visible } from "../text";
import { count } from "../time";
import "./failures/failures.css";

const EVERY = 5_000;

export function Failures() {
  const window = windowOf("24h");
  const name = place.value.query.get("name") ?? undefined;
  const range = rangeOf();
  const query = { name, ...(range ?? { window }) };
  const asked = useAnswer(at("/failures", query));
  useFresh(asked.again, EVERY);
  return (
    <section>
      <div class="bar">
        <h1>Failures</h1>
        <span class="grow" />
        <NameField />
        <WindowChoice fallback="24h" />
        <CopyAs ways={() => [{ title: "These groups", path: at("/failures", query) }]} />
      </div>
      {range && <RangeNote range={range} name={name} />}
      <Answered asked={asked}>{(answer) => <Groups answer={answer} window={window} name={name} />}</Answered>
    </section>
  );
}

function Groups({ answer, window, name }: { answer: OpsGroupList; window: Window; name: string | undefined }) {
  const columns = useMemo(() => columnsOf(window), [window]);
  const range = rangeOf();
  if (answer.groups.length === 0)
    return (
      <p class="empty">
        Nothing{name === undefined ? "" : ` of ${visible(name)}`} failed for good in{" "}
        {range ? "this time" : lastOf(window)}.
      </p>
    );
  const { otherGroups, inOtherGroups, looked } = answer;
  const all = plural(answer.groups.length + otherGroups, "group");
  const caption = `${all} of ${plural(looked, "job")} that ${looked === 1 ? "is" : "are"} failed now, from ${range ? "this time" : lastOf(window)}`;
  return (
    <Table
      caption={
        <>
          {caption}
          {otherGroups > 0 && (
            <span class="faint">
              {" "}
              (the largest {count(answer.groups.length)} groups are shown, with {count(looked - inOtherGroups)} jobs;{" "}
              {plural(otherGroups, "group")} with {plural(inOtherGroups, "job")} {otherGroups === 1 ? "is" : "are"} not)
            </span>
          )}
          {answer.groups[0]?.capped && <span class="faint"> (only the newest {count(looked)} are looked at)</span>}
        </>
      }
      columns={columns}
      rows={answer.groups}
      keyOf={(group) => group.fingerprint}
    />
  );
}

function columnsOf(window: Window): Column<OpsGroup>[] {
  return [
    { title: "Error", cell: (group) => <Sentence group={group} window={window} /> },
    { title: "Jobs", numeric: true, cell: (group) => count(group.count) },
    { title: "Share", numeric: true, priority: 2, cell: (group) => share(group) },
    { title: "First seen", priority: 3, cell: (group) => <When at={group.firstSeen} /> },
    { title: "Last seen", cell: (group) => <When at={group.lastSeen} /> },
    { title: "Trend", priority: 2, cell: (group) => <TrendBars counts={group.trend} tone="failed" what="failure" /> },
  ];
}

const MOST_NAMES = 4;

function Sentence({ group, window }: { group: OpsGroup; window: Window }) {
  const { names } = group;
  const more = names.length - MOST_NAMES;
  return (
    <span>
      <a href={href(under("/failures", group.fingerprint), { window })} title={visible(group.sentence)}>
        {visible(shortened(group.sentence, 200))}
      </a>
      <IsNew group={group} />
      <br />
      <span class="faint">
        {names
          .slice(0, MOST_NAMES)
          .map((name) => visible(shortened(name, 40)))
          .join(", ")}
        {more > 0 && ` and ${plural(more, "other name")}`}
      </span>
    </span>
  );
}
