import type { OpsPercentiles } from "../api.gen";
import { plural } from "../text";
import { Took } from "./when";

const SHARES = [
  ["p50", "p50Ms"],
  ["p90", "p90Ms"],
  ["p95", "p95Ms"],
  ["p99", "p99Ms"],
] as const;

/** Below which time half, 90 %, 95 % and 99 % of the runs stayed. */
export function Percentiles({ title, words, of }: { title: string; words: string; of: OpsPercentiles }) {
  return (
    <section class="card">
      <h2>
        {title}{" "}
        <span class="faint">
          {words}, {plural(of.count, "run")}
        </span>
      </h2>
      <dl class="numbers">
        {SHARES.map(([word, key]) => (
          <div key={word}>
            <dt>{word}</dt>
            <dd>
              {of[key] == null ? (
                <Took ms={null} />
              ) : (
                <>
                  ≈ <Took ms={of[key]} />
                </>
              )}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
