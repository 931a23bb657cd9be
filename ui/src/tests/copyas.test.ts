import assert from "node:assert/strict";
import test from "node:test";
import { actionWays, bulkWays, jobFilter, listWays, options, python, shell } from "../copyas";

const ROOT = "https://ops.example.org/monque/";

test("a shell gets hostile text as one word", () => {
  assert.equal(shell("send-email"), "send-email");
  assert.equal(shell("it's; rm -rf /"), `'it'\\''s; rm -rf /'`);
  assert.equal(shell(""), "''");
});

test("Python gets values as it writes them", () => {
  assert.equal(python({ a: [true, null, "x\"y", 1.5] }), `{"a": [True, None, "x\\"y", 1.5]}`);
});

test("filters become options, or nothing where there is no option", () => {
  assert.equal(options({ name: "a b", status: ["failed"], payload: { "a.b": "x" } }), `--name 'a b' --status failed --payload 'a.b="x"'`);
  assert.equal(options({ due: "now" }), "--status pending --due-before 0s");
  assert.equal(options({ failed: "0123456789ab" }), undefined);
});

test("an inclusive end becomes an exclusive one", () => {
  assert.equal(options({ createdAtTo: "2026-01-01T00:00:00.000Z" }), "--created-before 2026-01-01T00:00:00.001Z");
  assert.equal(jobFilter({ createdAtTo: "2026-01-01T00:00:00.000Z" }), `JobFilter(created_before=datetime.fromisoformat("2026-01-01T00:00:00.001Z"))`);
});

test("a list has all four languages, and no secret", () => {
  const query = new URLSearchParams({ name: "send/email" });
  const ways = listWays({ asked: { name: "send/email" }, query, limit: 50, sort: "id", descending: true }, ROOT);
  assert.equal(ways.command, "monque jobs list --name send/email --limit 50 --sort id --descending");
  assert.equal(ways.python, `from monque import JobFilter\n\npage = await monque.list_jobs(JobFilter(name="send/email"), limit=50, sort="id", descending=True)`);
  assert.equal(ways.link, `${ROOT}jobs?name=send%2Femail`);
  assert.match(ways.curl ?? "", /\$MONQUE_TOKEN/);
});

test("to delete one is a DELETE", () => {
  assert.match(actionWays("delete", "65f1c0ffee65f1c0ffee0001", ROOT).curl ?? "", /-X DELETE https:.*\/jobs\/65f1/);
});

test("to stop many means those that run alone", () => {
  const many = { action: "stop", asOf: "2026-01-01T00:00:00.000Z", spreadMs: 0, priority: 0 } as const;
  assert.equal(bulkWays({ ...many, target: { ids: ["a"] } }, ROOT).command, undefined);
  assert.equal(bulkWays({ ...many, target: { filter: { name: "x" } } }, ROOT).command, "monque jobs cancel --running --name x --status processing");
});

test("to act on all takes --all", () => {
  const many = { action: "retry", asOf: "2026-01-01T00:00:00.000Z", spreadMs: 60000, priority: 0 } as const;
  assert.equal(bulkWays({ ...many, target: { filter: {} } }, ROOT).command, "monque jobs retry --spread 60000ms --all");
});
