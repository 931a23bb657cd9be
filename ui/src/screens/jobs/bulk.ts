// An action on many jobs, piece by piece: the page keeps the place, the server keeps nothing.
import { act, to } from "../../api";
import type { OpsBulkBody, OpsBulkError, OpsBulkPreview, OpsBulkResult, OpsSelection } from "../../api.gen";
import type { Values } from "../job/options";
import { may } from "../../store";
import { OPERATIONS, type Operation } from "../../tables";

export type BulkAction = OpsBulkBody["action"];
export type Target = { ids: string[] } | { filter: OpsSelection };

/** The operations that this actor may do to many jobs. */
export function allowedOperations(): readonly Operation[] {
  return OPERATIONS.filter(({ bulkRights }) => bulkRights.every(may));
}

/** Whether this actor may do it to many jobs. */
export function isAllowed(action: BulkAction): boolean {
  return allowedOperations().some(({ name }) => name === action);
}

export function preview(action: BulkAction, target: Target): Promise<OpsBulkPreview> {
  return act(to("POST", "/bulk/preview"), { action, ...target });
}

export interface BulkOptions {
  action: BulkAction;
  target: Target;
  asOf: string;
  values: Values;
  note: string;
}

/** How far it is. `next` is where it goes on after a stop or a refusal. */
export interface Progress {
  changed: number;
  skipped: number;
  errors: readonly OpsBulkError[];
  next: string | null | undefined;
}

export const BEGIN: Progress = { changed: 0, skipped: 0, errors: [], next: undefined };

// A piece takes some tenths of a second: with twice as many, the stop button would feel dead.
const PIECE = 500;
const MOST_ERRORS = 200;

/** The next piece. */
export async function nextPiece(options: BulkOptions, { next }: Progress): Promise<OpsBulkResult> {
  return act(to("POST", "/bulk"), bodyOf(options, PIECE, next ?? undefined));
}

/** The body of a request for them. */
export function bodyOf(
  { action, target, asOf, values, note }: BulkOptions,
  limit: number,
  after?: string,
): OpsBulkBody {
  return { ...values, action, ...target, asOf, limit, after, note: note.trim() || undefined };
}

export function after(before: Progress, result: OpsBulkResult): Progress {
  return {
    changed: before.changed + result.count,
    skipped: before.skipped + result.skipped,
    errors: [...before.errors, ...result.errors].slice(0, MOST_ERRORS),
    next: result.next,
  };
}

/** Whether the count has to be typed: above 100, and for every delete. */
export function mustType(action: BulkAction, willChange: number): boolean {
  return action === "delete" || willChange > 100;
}

/** Whether a typed text is the count, with or without separators. */
export function isTyped(text: string, willChange: number): boolean {
  return text.replace(/[\s,.'’]/g, "") === String(willChange);
}
