import { Copy } from "./copy";

const LINES = `from monque import Monque
async with Monque("mongodb://localhost:27017/shop") as monque:
    await monque.enqueue("send-email", {"to": "Ada"})`;

/** What an empty collection shows: the way to the first job. */
export function FirstSteps() {
  return (
    <section class="card">
      <h2>No job is stored here yet</h2>
      <p>Store the first one:</p>
      <pre class="code" tabIndex={0}>
        {LINES}
      </pre>
      <Copy text={LINES} what="these lines" label="Copy these lines" />
    </section>
  );
}
