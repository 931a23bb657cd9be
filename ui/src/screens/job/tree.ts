// Payloads are relaxed Extended JSON: {"$oid": "…"} is one value of the type ObjectId. Pure.

export interface Node {
  type: string;
  /** Of a single value. */
  text?: string;
  /** Of an object or an array. */
  children?: [key: string, value: unknown][];
}

const EXTENDED =
  /^\$(oid|date|number\w+|binary|uuid|regularExpression|timestamp|symbol|code|minKey|maxKey|undefined|truncated)$/;
/** Those whose names in Extended JSON are not what people call them. */
const TYPES: Record<string, string> = { $oid: "ObjectId", $numberLong: "int64", $numberDecimal: "decimal" };

export function nodeOf(value: unknown): Node {
  if (value === null || value === undefined) return { type: "null", text: "null" };
  if (Array.isArray(value)) return { type: "array", children: value.map((each, at) => [String(at), each]) };
  if (typeof value === "object")
    return extended(value as Record<string, unknown>) ?? { type: "object", children: Object.entries(value) };
  return { type: typeof value, text: typeof value === "string" ? value : JSON.stringify(value) };
}

function extended(value: Record<string, unknown>): Node | undefined {
  const [[key, inner] = ["", undefined], ...others] = Object.entries(value);
  if (!EXTENDED.test(key) || others.length > 0) return undefined;
  const type = TYPES[key] ?? key.slice(1);
  return {
    type,
    text: inner !== null && typeof inner === "object" ? (first(inner) ?? JSON.stringify(inner)) : String(inner),
  };
}

/** Of {"base64": "…", "subType": "00"} and {"$numberLong": "…"} the first is the value. */
function first(value: object): string | undefined {
  const found = Object.values(value)[0];
  return typeof found === "string" ? found : undefined;
}

/** Where a value is, as Python and the text box of the list write it: a.b, a[0], a["odd key"]. */
export function pathTo(parent: string, key: string, inArray: boolean): string {
  if (inArray) return `${parent}[${key}]`;
  if (!/^[\w-]+$/.test(key)) return `${parent}[${JSON.stringify(key)}]`;
  return parent === "" ? key : `${parent}.${key}`;
}

/** Whether a key or a value in here has this text in it. */
export function contains(key: string, value: unknown, text: string): boolean {
  if (key.toLowerCase().includes(text)) return true;
  const node = nodeOf(value);
  if (node.text !== undefined) return node.text.toLowerCase().includes(text);
  return (node.children ?? []).some(([each, inner]) => contains(node.type === "array" ? "" : each, inner, text));
}

/** "3 keys", "1 item". */
export function sizeOf(node: Node): string {
  const size = node.children?.length ?? 0;
  return node.type === "array" ? `${size} item${size === 1 ? "" : "s"}` : `${size} key${size === 1 ? "" : "s"}`;
}

/** Bytes as people read them. */
export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  return size < 1024 * 1024 ? `${(size / 1024).toFixed(1)} KiB` : `${(size / 1024 / 1024).toFixed(1)} MiB`;
}

/** A field of the API in words: "nextRunAt" is "Next run", "durationMs" is "Duration". */
export function labelOf(field: string): string {
  const words = field.replace(/(At|Ms)$/, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return words.charAt(0).toUpperCase() + words.slice(1);
}
