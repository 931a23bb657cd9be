// One instance: what it runs, what it can run, and how it is set.
import { at } from "../../api";
import type { OpsInstanceAnswer, OpsInstanceWorker } from "../../api.gen";
import { Answered, useAnswer } from "../../parts/asking";
import { Card } from "../../parts/card";
import { Copy, CopyAs } from "../../parts/copy";
import { useFresh } from "../../parts/fresh";
import { Slots } from "../../parts/queues";
import { Status } from "../../parts/status";
import { Table, type Column } from "../../parts/table";
import { When } from "../../parts/when";
import { href, place } from "../../router";
import { plural, shortened, shortId, visible } from "../../text";
import { duration } from "../../time";
import { labelOf } from "../job/tree";
import { Lost } from "./lost";
import { Heard, hostOf, RunningJob, short, stateOf } from "./parts";
import { Facts } from "../../parts/facts";

export function OneInstance() {
  const id = place.value.query.get("id") ?? "";
  const asked = useAnswer(at("/instance", { id }));
  useFresh(asked.again, 2_000);
  return (
    <section>
      <p class="crumbs">
        <a href={href("/instances")}>Instances</a> / {shortId(id)}
      </p>
      {asked.answer === undefined && <h1>Instance</h1>}
      <Answered asked={asked}>{(instance) => <Whole instance={instance} />}</Answered>
    </section>
  );
}

function Whole({ instance }: { instance: OpsInstanceAnswer }) {
  const { id, running, workers, settings } = instance;
  return (
    <>
      <div class="bar head">
        <h1>{instance.reported ? hostOf(instance) : visible(shortened(id, 80))}</h1>
        <Status display={stateOf(instance)} />
        <span>
          <code>{visible(shortened(id, 80))}</code> <Copy text={id} what="the id" />
        </span>
        <span class="grow" />
        <CopyAs ways={() => [{ title: "This instance", path: at("/instance", { id }) }]} />
      </div>
      <Facts
        of={[
          ["Last heartbeat", <Heard instance={instance} />],
          [
            "Up since",
            <>
              <When at={instance.startedAt} as="absolute" />, <When at={instance.startedAt} />
            </>,
          ],
          ["Release", short(instance.release)],
          [
            "Monque, Python",
            <>
              {short(instance.version)}, {short(instance.python)}
            </>,
          ],
          instance.state === "silent" && instance.reported
            ? ["Last known", plural(instance.busy ?? 0, "run")]
            : ["Busy / slots", <Slots busy={instance.busy ?? running.length} all={instance.slots ?? 0} />],
          ["Claimed ahead", instance.claimedAhead ?? "–"],
          ["Ended, being stored", instance.settling ?? "–"],
          ["Change stream", short(instance.changeStream)],
        ]}
      />
      {(instance.alive || running.length > 0) && <Claimed instance={instance} />}
      {instance.reported && instance.state === "silent" && <Lost id={id} />}
      {workers != null && (
        <Table caption={plural(workers.length, "worker")} columns={WORKERS} rows={workers} keyOf={(row) => row.name} />
      )}
      {settings != null && <Settings settings={settings} />}
    </>
  );
}

/** What an instance runs; of one that is silent, what nobody has taken over yet. */
function Claimed({ instance: { id, alive, running, serverTime } }: { instance: OpsInstanceAnswer }) {
  return (
    <Card
      title={alive ? "Runs now" : "Not yet taken over"}
      actions={<a href={href("/jobs", { claimedBy: id, status: "processing" })}>As a list of jobs</a>}
    >
      {running.length === 0 && <p class="faint">Nothing.</p>}
      <ul>
        {running.map((job) => (
          <li key={job.id} class="failing">
            <span>
              <RunningJob job={job} at={serverTime} />
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

const WORKERS: readonly Column<OpsInstanceWorker>[] = [
  { title: "Name", cell: (row) => <a href={href("/queue", { name: row.name })}>{visible(shortened(row.name, 80))}</a> },
  { title: "Running / slots", numeric: true, cell: (row) => <Slots busy={row.active} all={row.concurrency} /> },
  { title: "State", cell: (row) => (row.off ? "switched off" : "on") },
];

function Settings({ settings }: { settings: Record<string, unknown> }) {
  return (
    <>
      <h2>Settings</h2>
      <Facts of={Object.entries(settings).map(([name, value]) => [visible(labelOf(name)), settingText(name, value)])} />
    </>
  );
}

function settingText(name: string, value: unknown): string {
  if (name.endsWith("Ms") && typeof value === "number") return duration(value);
  return typeof value === "boolean"
    ? value
      ? "yes"
      : "no"
    : visible(typeof value === "string" ? value : JSON.stringify(value));
}
