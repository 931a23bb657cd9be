import assert from "node:assert/strict";
import test from "node:test";
import { latencyWays, queueWays } from "../copynumbers";

const ROOT = "https://ops.example.org/monque/";

test("a queue and its pause in all languages, with names as one word", () => {
  const [show, pause] = queueWays("a'b/c?", false, ROOT);
  assert.equal(show?.command, `monque stats --name 'a'\\''b/c?'`);
  assert.equal(show?.python, `counts = await monque.queue_stats(name="a'b/c?")`);
  assert.equal(show?.link, "https://ops.example.org/monque/queue?name=a%27b%2Fc%3F");
  assert.equal(pause?.python, `await monque.pause("a'b/c?")`);
  assert.match(pause?.curl ?? "", /-X POST .*queue\/pause/);
});

test("all queues are paused with --all, and by None", () => {
  const [show, resume] = queueWays(undefined, true, ROOT);
  assert.equal(show?.command, "monque stats");
  assert.deepEqual([resume?.command, resume?.python], ["monque resume --all", "await monque.resume(None)"]);
  assert.ok(resume?.curl?.includes(`'{"name":null}'`));
});

test("latency asks for its window", () => {
  const { command, python, link } = latencyWays(undefined, "6h", ROOT);
  assert.equal(command, "monque trends --since 6h");
  assert.ok(python?.endsWith("points = await monque.trends(since=datetime.now(UTC) - timedelta(hours=6))"));
  assert.equal(link, "https://ops.example.org/monque/latency?window=6h");
});
