// The queues in trouble, and the busiest of the others.
import { useMemo } from "preact/hooks";
import type { OpsOutlook, OpsQueueRow } from "../../api.gen";
import { Card } from "../../parts/card";
import { useOrder } from "../../parts/order";
import { Slots, Zero } from "../../parts/queues";
import { Took } from "../../parts/when";
import { href } from "../../router";
import { plural, shortened, visible } from "../../text";
import { count } from "../../time";
import { byTrouble } from "../../parts/trouble";

const SHOWN = 5;

export function Queues({ rows, outlooks }: { rows: readonly OpsQueueRow[]; outlooks: Record<string, OpsOutlook> }) {
  const sorted = useMemo(() => byTrouble(rows, outlooks), [rows, outlooks]);
  const troubled = sorted.filter((row) => row.trouble.weight > 0).length;
  // Rows that the reader points at stay where they are.
  const places = new Map(sorted.map((row, at) => [row.name, at]));
  const { rows: steady, hold } = useOrder(
    sorted,
    (row) => row.name,
    (a, b) => (places.get(a.name) ?? 0) - (places.get(b.name) ?? 0),
    "trouble",
  );
  return (
    <div {...hold}>
      <Card
        title={troubled === 0 ? "Queues" : `${plural(troubled, "queue")} in trouble`}
        actions={<a href={href("/queues")}>All {plural(rows.length, "queue")}</a>}
      >
        {rows.length === 0 ? (
          <p class="faint">No queues.</p>
        ) : (
          <table class="lines">
            <caption class="hidden-text">Queues by trouble</caption>
            <thead>
              <tr>
                <th scope="col">Queue</th>
                <th scope="col" class="number">
                  Due
                </th>
                <th scope="col" class="number">
                  Oldest
                </th>
                <th scope="col" class="number">
                  Running
                </th>
                <th scope="col" class="number rest">
                  Per min
                </th>
              </tr>
            </thead>
            <tbody>
              {steady.slice(0, SHOWN).map((row) => (
                <tr key={row.name}>
                  <th scope="row">
                    <a href={href("/queue", { name: row.name })} title={visible(row.name)}>
                      {visible(shortened(row.name, 40))}
                    </a>
                    {row.trouble.words !== "" && (
                      <span class={row.trouble.tone === "plain" ? "faint" : `${row.trouble.tone}-text`}>
                        {" "}
                        {row.trouble.words}
                      </span>
                    )}
                  </th>
                  <td class="number">
                    <Zero value={row.due} to={href("/jobs", { name: row.name, status: "pending", due: "now" })} />
                  </td>
                  <td class="number">
                    <Took ms={row.due > 0 ? row.oldestDueMs : null} />
                  </td>
                  <td class="number">
                    <Slots busy={row.running} all={row.slots} ahead={row.claimedAhead} />
                  </td>
                  <td class="number rest">{count(row.completedPerMin ?? 0)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Card>
    </div>
  );
}
