import type { OpsAuditEntry } from "../../api.gen";
import { When } from "../../parts/when";
import { visible } from "../../text";

/** Who did what to this job. */
export function Trail({ entries }: { entries: readonly OpsAuditEntry[] }) {
  if (entries.length === 0) return null;
  return (
    <section aria-labelledby="trail">
      <h2 id="trail">Audit</h2>
      <div class="table">
        <table class="cards">
          <caption class="hidden-text">What people did to this job, the newest first</caption>
          <thead><tr><th scope="col">Action</th><th scope="col">Who</th><th scope="col">When</th><th scope="col">Outcome</th><th scope="col">Change</th><th scope="col">Note</th></tr></thead>
          <tbody>
            {entries.map((entry) => (
              <tr key={entry.id}>
                <th scope="row" data-label="Action">{visible(entry.action)}</th>
                <td data-label="Who">{visible(entry.actor)} <span class="faint">{visible(entry.via)}</span></td>
                <td data-label="When"><When at={entry.at} as="absolute" /></td>
                <td data-label="Outcome">{visible(entry.outcome)}</td>
                <td data-label="Change">{changeOf(entry)}</td>
                <td data-label="Note">{visible(entry.note ?? "")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function changeOf({ before, after }: OpsAuditEntry): string {
  const [from, to] = [before?.["status"], after?.["status"]];
  if (typeof from !== "string") return "";
  return visible(typeof to === "string" && to !== from ? `${from} → ${to}` : from);
}
