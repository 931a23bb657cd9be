// Made from monque.FILTERS and monque.OPERATIONS by `make tables`.
import type { OpsBulkBody, OpsJob } from "./api.gen";

export interface FilterField {
  key: string;
  kind: "below" | "choice" | "flag" | "id" | "ids" | "least" | "number" | "payload" | "since" | "status" | "text" | "until";
  label: string;
  /** What people type before a value; the others have chips and fields. */
  word?: string;
  choices?: readonly string[];
  minimum?: number;
  maximum?: number;
}

export interface Operation {
  name: OpsBulkBody["action"];
  route: OpsJob["actions"][number];
  verb: string;
  done: string;
  asks: boolean;
  /** The states that it applies to; none: all of them. */
  states?: readonly OpsJob["status"][];
  bulkRights: readonly string[];
  options: readonly { name: keyof OpsBulkBody; kind: "duration" | "flag" | "priority" | "text" | "time"; required: boolean }[];
}

export const FILTERS: readonly FilterField[] = [
  {key: "name", kind: "text", label: "name", word: "name"},
  {key: "status", kind: "status", label: "status"},
  {key: "createdAtFrom", kind: "since", label: "created after"},
  {key: "createdAtTo", kind: "until", label: "created before"},
  {key: "updatedAtFrom", kind: "since", label: "changed after"},
  {key: "updatedAtTo", kind: "until", label: "changed before"},
  {key: "nextRunAtFrom", kind: "since", label: "due after"},
  {key: "nextRunAtTo", kind: "until", label: "due before"},
  {key: "expired", kind: "flag", label: "expired", word: "expired"},
  {key: "cancelledBy", kind: "choice", label: "cancelled by", word: "cancelled-by", choices: ["operator", "handler", "expiry", "batch"]},
  {key: "priority", kind: "number", label: "priority", word: "priority", minimum: 1, maximum: 9},
  {key: "uniqueKey", kind: "text", label: "unique key", word: "key"},
  {key: "id", kind: "ids", label: "id", word: "id"},
  {key: "payload", kind: "payload", label: "payload", word: "payload"},
  {key: "scheduleId", kind: "id", label: "schedule id", word: "schedule"},
  {key: "recurring", kind: "flag", label: "recurring", word: "recurring"},
  {key: "claimedBy", kind: "text", label: "claimed by", word: "on"},
  {key: "claimedAtFrom", kind: "since", label: "claimed after"},
  {key: "claimedAtTo", kind: "until", label: "claimed before"},
  {key: "waiting", kind: "flag", label: "waiting", word: "waiting"},
  {key: "waitsFor", kind: "choice", label: "waits for", word: "waits-for", choices: ["time", "signal", "batch", "turn"]},
  {key: "awaits", kind: "text", label: "awaits", word: "awaits"},
  {key: "batch", kind: "text", label: "batch", word: "batch"},
  {key: "lostBy", kind: "text", label: "lost by", word: "lost-by"},
  {key: "ranAtLeastMs", kind: "least", label: "ran at least", word: "ran-at-least"},
  {key: "ranLessThanMs", kind: "below", label: "ran less than", word: "ran-less-than"},
  {key: "waitedAtLeastMs", kind: "least", label: "waited at least", word: "waited-at-least"},
  {key: "waitedLessThanMs", kind: "below", label: "waited less than", word: "waited-less-than"},
];

export const OPERATIONS: readonly Operation[] = [
  {name: "run-now", route: "run-now", verb: "Run now", done: "Due now:", asks: false, states: ["pending"], bulkRights: ["reschedule", "cancelBulk"], options: []},
  {name: "retry", route: "retry", verb: "Retry", done: "Retried", asks: false, states: ["cancelled", "failed"], bulkRights: ["retryBulk"], options: [{name: "spreadMs", kind: "duration", required: false}, {name: "fromStep", kind: "text", required: false}, {name: "fromStart", kind: "flag", required: false}]},
  {name: "cancel", route: "cancel", verb: "Cancel", done: "Cancelled", asks: false, states: ["pending"], bulkRights: ["cancelBulk"], options: []},
  {name: "stop", route: "stop", verb: "Stop", done: "Asked to stop:", asks: true, states: ["processing"], bulkRights: ["stop", "cancelBulk"], options: []},
  {name: "reschedule", route: "reschedule", verb: "Reschedule", done: "Rescheduled", asks: true, states: ["pending"], bulkRights: ["reschedule", "cancelBulk"], options: [{name: "nextRunAt", kind: "time", required: true}]},
  {name: "prioritize", route: "priority", verb: "Prioritize", done: "Prioritized", asks: true, states: ["pending"], bulkRights: ["prioritize", "cancelBulk"], options: [{name: "priority", kind: "priority", required: true}]},
  {name: "delete", route: "delete", verb: "Delete", done: "Deleted", asks: true, bulkRights: ["deleteBulk"], options: []},
];
