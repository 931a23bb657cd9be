// Everything of one job name.
import { at } from "../api";
import type { OpsQueue, OpsServer } from "../api.gen";
import { Answered, useAnswer } from "../parts/asking";
import { CopyAs } from "../parts/copy";
import { Failing } from "../parts/failing";
import { useFresh } from "../parts/fresh";
import { Opener } from "../parts/opener";
import { PauseButton, PauseNote, queueWays } from "../parts/pausing";
import { Percentiles } from "../parts/percentiles";
import { Slots } from "../parts/queues";
import { Status } from "../parts/status";
import { Table, type Column } from "../parts/table";
import { Tiles } from "../parts/tiles";
import { Throughput } from "../parts/throughput";
import { When } from "../parts/when";
import { Explained } from "../parts/why";
import { WindowChoice, windowOf, type Window } from "../parts/windows";
import { href, place } from "../router";
import { may, offers } from "../store";
import { snapshot } from "../stream";
import { Later } from "./enqueue/later";
import { JobList } from "./jobs/joblist";
import { SCHEDULE_COLUMNS } from "./schedules/columns";
import { Lines } from "./queue/lines";
import { shortId, visible } from "../text";
import { count, duration } from "../time";

const EVERY = 5_000;

export function Queue() {
  const name = place.value.query.get("name") ?? "";
  return <One key={name} name={name} />;
}

function One({ name }: { name: string }) {
  const window = windowOf();
  const asked = useAnswer(at("/queue", { name, window }));
  useFresh(asked.again, EVERY);
  return (
    <section>
      <div class="bar">
        <h1>
          <span class="faint">Queue</span> {visible(name)}
        </h1>
        <span class="grow" />
        <WindowChoice />
        {may("enqueue") && (
          <Opener label="New job…">
            {(close) => (
              <Later load={() => import("./enqueue/enqueue")}>
                {({ NewJob }) => <NewJob name={name} close={close} />}
              </Later>
            )}
          </Opener>
        )}
        {may("pause") && asked.answer !== undefined && asked.answer.pause == null && (
          <PauseButton name={name} verb="Pause" done={asked.again} />
        )}
        <CopyAs ways={() => queueWays("This queue", asked.address, name, asked.answer?.pause)} />
      </div>
      <Answered asked={asked}>{(queue) => <Shown queue={queue} window={window} again={asked.again} />}</Answered>
    </section>
  );
}

function Shown({ queue, window, again }: { queue: OpsQueue; window: Window; again: () => void }) {
  return (
    <>
      {queue.pause != null && <PauseNote pause={queue.pause} done={again} />}
      {queue.explanation != null && queue.explanation.code !== "paused" && <Explained why={queue.explanation} />}
      <Numbers queue={queue} />
      <Throughput series={queue.series} name={queue.name} />
      <div class="columns">
        <Percentiles title="Wait" words="from due to start" of={queue.wait} />
        <Percentiles title="Run" words="from start to end" of={queue.run} />
      </div>
      <p>
        <a href={href("/latency", { name: queue.name, window })}>Latency of this queue over time</a>
      </p>
      <Lines name={queue.name} />
      <Groups name={queue.name} window={window} />
      <Servers servers={queue.servedBy} />
      <Schedules queue={queue} />
      <JobList title={<h2>Its jobs</h2>} name={queue.name} />
    </>
  );
}

/** Live where the stream has them. Counts of finished jobs are exact and say when they were made. */
function Numbers({ queue }: { queue: OpsQueue }) {
  const live = snapshot.value?.rows.get(queue.name) ?? queue;
  const { stored } = queue;
  const jobs = (status: string, due?: string) => href("/jobs", { name: queue.name, status, due });
  const known = (value: number | null | undefined) => (value == null ? "–" : count(value));
  return (
    <>
      <Tiles
        tiles={[
          {
            word: "due",
            value: count(live.due),
            to: jobs("pending", "now"),
            more: live.due > 0 ? `oldest ${duration(live.oldestDueMs)}` : undefined,
          },
          {
            word: "later",
            value: count(live.later),
            to: jobs("pending", "later"),
            more: live.parked > 0 ? `${count(live.parked)} with no time yet` : undefined,
          },
          {
            word: "running",
            value: `${count(live.running)} / ${live.slots || "–"}`,
            to: jobs("processing"),
            more:
              live.claimedAhead > 0
                ? `${count(live.claimedAhead)} claimed ahead`
                : live.slots > 0
                  ? "of the slots"
                  : "no slots",
          },
          { word: "failed now", value: known(stored?.failed ?? live.failed), to: jobs("failed") },
          { word: "cancelled", value: known(stored?.cancelled), to: jobs("cancelled") },
          { word: "completed", value: known(stored?.completed), to: jobs("completed") },
        ]}
      />
      {queue.outlook != null && live.due > 0 && <Outlook outlook={queue.outlook} />}
      <p class="faint">
        {stored == null ? (
          "Too many to be counted."
        ) : (
          <>
            {count(stored.total)} stored in all, counted <When at={stored.countedAt} />.
          </>
        )}
      </p>
    </>
  );
}

/** When it will be empty, and what that rests on. */
function Outlook({ outlook }: { outlook: NonNullable<OpsQueue["outlook"]> }) {
  const { words, arrivedPerMin, endedPerMin } = outlook;
  return (
    <p class="outlook">
      <strong>{words.charAt(0).toUpperCase() + words.slice(1)}</strong>
      <span class="faint">
        : in the last five minutes about <span class="number">{count(Math.round(arrivedPerMin))}</span> a minute came
        and <span class="number">{count(Math.round(endedPerMin))}</span> a minute ended
      </span>
    </p>
  );
}

function Groups({ name, window }: { name: string; window: Window }) {
  const offered = offers("failures");
  const asked = useAnswer(offered ? at("/failures", { name, window }) : undefined);
  useFresh(asked.again, 15_000);
  if (!offered) return null;
  return (
    <Answered asked={asked}>
      {(answer) => <Failing groups={answer.groups.slice(0, 5)} window={window} name={name} />}
    </Answered>
  );
}

const SERVERS: readonly Column<OpsServer>[] = [
  {
    title: "Instance",
    cell: (each) => (
      <a class="mono" href={href("/instance", { id: each.id })} title={visible(each.id)}>
        {shortId(each.id)}
      </a>
    ),
  },
  { title: "Host", cell: (each) => (each.host == null ? "–" : visible(each.host)) },
  {
    title: "State",
    cell: (each) =>
      !each.alive ? (
        <Status display="silent" />
      ) : each.off ? (
        <span class="flag warn">switched off</span>
      ) : (
        <Status display="alive" />
      ),
  },
  { title: "Running / slots", numeric: true, cell: (each) => <Slots busy={each.active} all={each.concurrency} /> },
];

function Servers({ servers }: { servers: readonly OpsServer[] }) {
  return (
    <Table
      caption="Instances that serve it"
      columns={SERVERS}
      rows={servers}
      keyOf={(each) => each.id}
      empty="No instance serves it."
    />
  );
}

function Schedules({ queue }: { queue: OpsQueue }) {
  if (queue.schedules.length === 0) return null;
  return <Table caption="Its schedules" columns={SCHEDULE_COLUMNS} rows={queue.schedules} keyOf={(each) => each.id} />;
}
