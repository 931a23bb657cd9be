// The live numbers: a snapshot, and how a delta changes it. Pure.

export type Cell = string | number | boolean | null;

export interface Wire {
  at: string;
  seq: number;
  everyMs: number;
  tookMs: number;
  columns: string[];
  totals: Record<string, number | null>;
  names: Cell[][];
  instances: LiveInstance[];
  trouble: Trouble | null;
  gone?: string[];
  goneInstances?: string[];
}

export interface Trouble {
  since: string;
  text: string;
}

export interface QueueRow {
  name: string;
  due: number;
  later: number;
  processing: number;
  oldestDueMs: number;
  failed: number | null;
  completedPerMin: number;
  retriedPerMin: number;
  failedPerMin: number;
  waitP95Ms: number | null;
  slots: number | null;
  paused: boolean;
}

export interface LiveInstance {
  id: string;
  host: string | null;
  pid: number | null;
  release: string | null;
  version: string | null;
  state: string;
  alive: boolean;
  seenAt: string | null;
  slots: number;
  busy: number;
}

export interface Snapshot {
  at: number;
  seq: number;
  everyMs: number;
  tookMs: number;
  totals: Record<string, number | null>;
  rows: ReadonlyMap<string, QueueRow>;
  instances: ReadonlyMap<string, LiveInstance>;
  trouble: Trouble | null;
}

/** A snapshot as it came, whole. */
export function whole(wire: Wire): Snapshot {
  return {
    ...frame(wire),
    rows: new Map(wire.names.map((cells) => row(wire.columns, cells))),
    instances: new Map(wire.instances.map((each) => [each.id, each])),
  };
}

/** The snapshot after a delta: rows that did not change stay the same objects. */
export function after(before: Snapshot, wire: Wire): Snapshot {
  const rows = new Map(before.rows);
  for (const name of wire.gone ?? []) rows.delete(name);
  for (const cells of wire.names) rows.set(...row(wire.columns, cells));
  const instances = new Map(before.instances);
  for (const id of wire.goneInstances ?? []) instances.delete(id);
  for (const each of wire.instances) instances.set(each.id, each);
  return { ...frame(wire), rows, instances };
}

function frame(wire: Wire): Omit<Snapshot, "rows" | "instances"> {
  const { seq, everyMs, tookMs, totals, trouble } = wire;
  return { at: Date.parse(wire.at), seq, everyMs, tookMs, totals, trouble };
}

function row(columns: readonly string[], cells: readonly Cell[]): [string, QueueRow] {
  const values = Object.fromEntries(columns.map((column, at) => [column, cells[at] ?? null]));
  return [String(values["name"]), values as unknown as QueueRow];
}
