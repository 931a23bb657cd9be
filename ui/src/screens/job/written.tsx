// What the handler left: how far it is, what it logged, what came out.
import type { OpsJobAnswer, OpsProgress } from "../../api.gen";
import { When } from "../../parts/when";
import { grouped, visible } from "../../text";
import { Tree } from "./payload";

export function Written({ job }: { job: OpsJobAnswer }) {
  return (
    <>
      {job.progress != null && <HowFar progress={job.progress} />}
      {job.result !== undefined && (
        <section aria-labelledby="result">
          <h2 id="result">Result</h2>
          <Tree value={job.result} what="result" />
        </section>
      )}
      {job.resultError != null && <p class="banner warn">Result not stored: {visible(job.resultError)}</p>}
      {job.log != null && job.log.length > 0 && (
        <section aria-labelledby="log">
          <h2 id="log">Log</h2>
          <ol class="log">
            {job.log.map((line, index) => (
              <li key={index}>
                <When at={line.at} as="absolute" />{" "}
                <span class={`level level-${line.level}`}>{visible(line.level)}</span> {visible(line.text)}
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

function HowFar({ progress }: { progress: OpsProgress }) {
  const { done, total, fraction, message, at } = progress;
  return (
    <section aria-labelledby="progress">
      <h2 id="progress">Progress</h2>
      {fraction != null && <progress aria-labelledby="progress" max={1} value={fraction} />}
      <p>
        {grouped(done)}
        {total != null && ` of ${grouped(total)}`}
        {message != null && `: ${visible(message)}`}{" "}
        {at != null && (
          <span class="faint">
            <When at={at} />
          </span>
        )}
      </p>
    </section>
  );
}
