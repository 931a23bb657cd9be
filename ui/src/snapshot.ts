// The live numbers: a snapshot, and how a delta changes it. Pure.
import type { OpsDelta, OpsLiveInstance, OpsQueueRow, OpsSnapshot } from "./api.gen";

type Frame = Pick<OpsSnapshot, "seq" | "everyMs" | "tookMs" | "totals" | "trouble"> & { at: number };

export interface Snapshot extends Frame {
  rows: ReadonlyMap<string, OpsQueueRow>;
  instances: ReadonlyMap<string, OpsLiveInstance>;
}

/** A snapshot as it came, whole. */
export function whole(wire: OpsSnapshot): Snapshot {
  return {
    ...frame(wire),
    rows: new Map(wire.names.map((cells) => row(wire.columns, cells))),
    instances: new Map(wire.instances.map((each) => [each.id, each])),
  };
}

/** The snapshot after a delta: rows that did not change stay the same objects. */
export function after(before: Snapshot, wire: OpsDelta): Snapshot {
  const rows = new Map(before.rows);
  for (const name of wire.gone) rows.delete(name);
  for (const cells of wire.names) rows.set(...row(wire.columns, cells));
  const instances = new Map(before.instances);
  for (const id of wire.goneInstances) instances.delete(id);
  for (const each of wire.instances) instances.set(each.id, each);
  return { ...frame(wire), rows, instances };
}

function frame(wire: OpsSnapshot): Frame {
  const { seq, everyMs, tookMs, totals, trouble } = wire;
  return { at: Date.parse(wire.at), seq, everyMs, tookMs, totals, trouble };
}

function row(columns: readonly string[], cells: OpsSnapshot["names"][number]): [string, OpsQueueRow] {
  const values = Object.fromEntries(columns.map((column, at) => [column, cells[at] ?? null]));
  return [String(values.name), values as unknown as OpsQueueRow];
}
