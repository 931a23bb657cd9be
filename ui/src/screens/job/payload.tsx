// A payload or a result as a tree: types, search, copies, and the text as it is.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { bound } from "../../parts/fields";
import { ROOT, at } from "../../api";
import type { OpsJobAnswer } from "../../api.gen";
import { Copy } from "../../parts/copy";
import { change, place } from "../../router";
import { shown, visible } from "../../text";
import { bytes, contains, nodeOf, pathTo, sizeOf, type Node } from "./tree";

export function Payload({ job }: { job: OpsJobAnswer }) {
  const download = ROOT + at("/jobs/{id}/payload", { id: job.id });
  return (
    <section aria-labelledby="payload">
      <h2 id="payload">Payload</h2>
      {job.payloadHidden === true && <p class="faint">You may not see payloads.</p>}
      {job.truncated != null && (
        <p>
          It has {bytes(job.truncated)}, too much to be shown.{" "}
          <a href={download} download="payload.json">
            Download it
          </a>
        </p>
      )}
      {job.payloadHidden !== true && job.truncated == null && (
        <Tree value={job.payload} what="payload" download={download} />
      )}
    </section>
  );
}

export function Tree({ value, what, download }: { value: unknown; what: string; download?: string }) {
  const raw = place.value.query.get(what) === "raw";
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? "null", [value]);
  const search = useSignal("");
  const isSingle = nodeOf(value).children === undefined;
  return (
    <>
      <div class="bar">
        {!raw && !isSingle && (
          <label class="choice">
            Find
            <input type="search" {...bound(search)} />
          </label>
        )}
        <button type="button" aria-pressed={raw} onClick={() => change({ [what]: raw ? undefined : "raw" }, "replace")}>
          Raw
        </button>
        <Copy text={text} what={`all of the ${what}`} label="Copy all" />
        {download !== undefined && (
          <a href={download} download="payload.json">
            Download
          </a>
        )}
        <span class="faint">{bytes(new Blob([text]).size)} as JSON</span>
      </div>
      {raw ? (
        <pre class="block" tabIndex={0}>
          {shown(text)}
        </pre>
      ) : (
        <ul class="tree">
          <Branch name="" value={value} path="" depth={0} search={search.value.trim().toLowerCase()} />
        </ul>
      )}
    </>
  );
}

interface BranchProps {
  name: string;
  value: unknown;
  path: string;
  depth: number;
  search: string;
}

const MOST_AT_ONCE = 100;

function Branch({ name, value, path, depth, search }: BranchProps) {
  const node = useMemo(() => nodeOf(value), [value]);
  const pressed = useSignal<boolean>();
  const most = useSignal(MOST_AT_ONCE);
  if (node.children === undefined) return <Leaf name={name} node={node} path={path} value={value} search={search} />;
  const found = search !== "" && contains("", value, search);
  const open = pressed.value ?? (found || depth < 2);
  return (
    <li>
      <span class="twig">
        <button type="button" class="bare" aria-expanded={open} onClick={() => (pressed.value = !open)}>
          <span aria-hidden="true">{open ? "▾" : "▸"}</span>{" "}
          {name === "" ? <span class="faint">{node.type}</span> : <Name name={name} search={search} />}
        </button>
        <span class="faint">{sizeOf(node)}</span>
        {path !== "" && <Copies path={path} value={value} />}
      </span>
      {open && (
        <ul>
          {node.children.slice(0, most.value).map(([key, inner]) => (
            <Branch
              key={key}
              name={key}
              value={inner}
              path={pathTo(path, key, node.type === "array")}
              depth={depth + 1}
              search={search}
            />
          ))}
          {node.children.length > most.value && (
            <li>
              <button type="button" class="bare" onClick={() => (most.value += MOST_AT_ONCE)}>
                Show more of {sizeOf(node)}
              </button>
            </li>
          )}
        </ul>
      )}
    </li>
  );
}

function Leaf({
  name,
  node,
  path,
  value,
  search,
}: {
  name: string;
  node: Node;
  path: string;
  value: unknown;
  search: string;
}) {
  const text = node.text ?? "";
  const found = search !== "" && text.toLowerCase().includes(search);
  return (
    <li>
      <span class="twig">
        {name !== "" && <Name name={name} search={search} />}
        <span class={`value value-${node.type}${found ? " found" : ""}`}>
          {node.type === "string" ? `“${shown(text)}”` : visible(text)}
        </span>
        {node.type !== "string" && node.type !== "null" && node.type !== "boolean" && node.type !== "number" && (
          <span class="type">{node.type}</span>
        )}
        <Copies path={path} value={value} />
      </span>
    </li>
  );
}

function Name({ name, search }: { name: string; search: string }) {
  return (
    <span class={search !== "" && name.toLowerCase().includes(search) ? "name found" : "name"}>{visible(name)}</span>
  );
}

function Copies({ path, value }: { path: string; value: unknown }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return (
    <span class="copies">
      <Copy text={text} what={`value${path === "" ? "" : ` of ${visible(path)}`}`} label="Copy value" />
      {path !== "" && <Copy text={path} what={`path ${visible(path)}`} label="Copy path" />}
    </span>
  );
}
