// One group of failures: what it is, a canary, and then the rest.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { act, at, to } from "../../api";
import type { OpsGroupAnswer } from "../../api.gen";
import { TrendBars } from "../../charts/bars";
import { Answered, useAnswer } from "../../parts/asking";
import { CopyAs } from "../../parts/copy";
import { useFresh } from "../../parts/fresh";
import { usePress } from "../../parts/press";
import { When } from "../../parts/when";
import { lastOf, WindowChoice, windowOf, type Window } from "../../parts/windows";
import { change, href, place } from "../../router";
import { may, say } from "../../store";
import { useTitle } from "../../title";
import { plural, shortened, shortId, visible } from "../../text";
import { IsNew, share } from "../../parts/failing";
import { jobHref } from "../../parts/joblink";
import { isAllowed } from "../jobs/bulk";
import { BulkDialog } from "../jobs/bulkdialog";
import { CanaryView } from "./canaryview";
import { Samples } from "./samples";
import { Facts } from "../../parts/facts";

const EVERY = 5_000;

// A group that is not among so many is one of the smallest, or gone.
const LISTED = 200;

/** The group as the list has it by now, with samples; the list also tells when the group is gone. */
function useGroup(fingerprint: string, window: Window) {
  const list = useAnswer(at("/failures", { window }));
  const groups = list.answer?.groups;
  const known = groups?.find((group) => group.fingerprint === fingerprint);
  const isGone = groups !== undefined && known === undefined && groups.length < LISTED;
  const asked = useAnswer(
    groups === undefined || isGone ? undefined : at("/failures/{fingerprint}", { fingerprint, window }),
  );
  useEffect(() => {
    if (asked.answer !== undefined && !isGone) asked.again();
  }, [known?.sampleIds.join()]);
  useFresh(list.again, EVERY);
  const answer = asked.answer && { ...asked.answer, ...known };
  return {
    asked: { ...asked, answer, problem: list.problem ?? asked.problem },
    isGone: isGone || asked.problem?.status === 404,
    again: list.again,
  };
}

export function FailureGroup({ id }: { id: string }) {
  const window = windowOf("24h");
  const { asked, isGone, again } = useGroup(id, window);
  const bulk = useSignal<"retry" | "delete">();
  const canary = place.value.query.get("canary");
  const left = isGone ? 0 : (asked.answer?.count ?? 0);
  const retryRest = isAllowed("retry") ? () => (bulk.value = "retry") : undefined;
  return (
    <section>
      <div class="bar">
        <span class="crumbs">
          <a href={href("/failures", { window })}>Failures</a> / {visible(id)}
        </span>
        <span class="grow" />
        <WindowChoice fallback="24h" />
      </div>
      {canary !== null && (
        <CanaryView key={canary} id={canary} fingerprint={id} left={left} retryRest={retryRest} onEnd={again} />
      )}
      {(isGone || asked.answer === undefined) && <h1>Group of failures</h1>}
      {isGone ? (
        <Gone window={window} />
      ) : (
        <Answered asked={asked}>
          {(group) => <Group group={group} window={window} ask={(action) => (bulk.value = action)} />}
        </Answered>
      )}
      {bulk.value !== undefined && (
        <BulkDialog
          action={bulk.value}
          target={{ filter: { failed: id } }}
          close={() => {
            bulk.value = undefined;
            again();
          }}
        />
      )}
    </section>
  );
}

function Gone({ window }: { window: Window }) {
  return (
    <p class="empty">
      No failed job of {lastOf(window)} belongs to this group: all were retried or deleted.{" "}
      {window !== "30d" && (
        <button type="button" onClick={() => change({ window: "30d" })}>
          Look back 30 days
        </button>
      )}
    </p>
  );
}

interface Props {
  group: OpsGroupAnswer;
  window: Window;
  ask: (action: "retry" | "delete") => void;
}

function Group({ group, window, ask }: Props) {
  const { fingerprint } = group;
  useTitle(group.sentence);
  return (
    <>
      <h1>
        {visible(shortened(group.sentence, 400))}
        <IsNew group={group} />
      </h1>
      <div class="bar">
        {may("retry") && <CanaryButton fingerprint={fingerprint} />}
        {isAllowed("retry") && (
          <button type="button" onClick={() => ask("retry")}>
            Retry all {plural(group.count, "job")}…
          </button>
        )}
        {isAllowed("delete") && (
          <button type="button" class="danger" onClick={() => ask("delete")}>
            Delete {plural(group.count, "job")}…
          </button>
        )}
        <span class="grow" />
        <CopyAs
          ways={() => [
            { title: "This group", path: at("/failures/{fingerprint}", { fingerprint, window }) },
            { title: "Retry one as a canary", ...canaryOf(fingerprint), body: {} },
          ]}
        />
      </div>
      <Facts
        of={[
          [
            "Failed jobs",
            <>
              <a href={href("/jobs", { failed: fingerprint })}>{plural(group.count, "job")}</a>, {share(group)} of{" "}
              {plural(group.looked, "job")} failed now, from {lastOf(window)}
            </>,
          ],
          [
            "Names",
            group.names.map((name, at) => (
              <span key={name}>
                {at > 0 && ", "}
                <a href={href("/queue", { name })}>{visible(shortened(name, 60))}</a>
              </span>
            )),
          ],
          [
            "First seen",
            <>
              <When at={group.firstSeen} as="absolute" />, <When at={group.firstSeen} />
            </>,
          ],
          [
            "Last seen",
            <>
              <When at={group.lastSeen} as="absolute" />, <When at={group.lastSeen} />
            </>,
          ],
          ["Trend", <TrendBars counts={group.trend} tone="failed" what="failure" />],
        ]}
      />
      <Samples samples={group.samples} differingKeys={group.differingKeys ?? undefined} />
    </>
  );
}

function canaryOf(fingerprint: string) {
  return to("POST", "/failures/{fingerprint}/canary", { fingerprint });
}

/** Retry one, the newest: if it completes, the others will. */
function CanaryButton({ fingerprint }: { fingerprint: string }) {
  const { busy, press } = usePress(async () => {
    const sent = await act(canaryOf(fingerprint), {});
    say({
      tone: "good",
      text: `Retried ${visible(shortened(sent.name, 60))} ${shortId(sent.id)} as a canary.`,
      link: { href: jobHref(sent.id), text: "Open" },
    });
    change({ canary: sent.id });
  });
  return (
    <button type="button" class="primary" disabled={busy} onClick={press}>
      Retry one as a canary
    </button>
  );
}
