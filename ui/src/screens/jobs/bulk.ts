// An action on many jobs, piece by piece: the page keeps the place, the server keeps nothing.
import { act } from "../../api";
import type { OpsBulkBody, OpsBulkError, OpsBulkPreview, OpsBulkResult, OpsSelection } from "../../api.gen";
import { may, offers } from "../../store";

export type BulkAction = OpsBulkBody["action"];
export type Target = { ids: string[] } | { filter: OpsSelection };

interface BulkWords {
  action: BulkAction;
  verb: string;
  allowed: () => boolean;
}

export const BULK_ACTIONS: readonly BulkWords[] = [
  { action: "retry", verb: "Retry", allowed: () => may("retryBulk") },
  { action: "cancel", verb: "Cancel", allowed: () => may("cancelBulk") },
  { action: "stop", verb: "Stop", allowed: () => may("stop") && may("cancelBulk") && offers("stop") },
  { action: "prioritize", verb: "Prioritize", allowed: () => may("prioritize") && may("cancelBulk") && offers("priorities") },
  { action: "delete", verb: "Delete", allowed: () => may("deleteBulk") },
];

export function preview(action: BulkAction, target: Target): Promise<OpsBulkPreview> {
  return act<OpsBulkPreview>("POST", "/bulk/preview", { action, ...target });
}

export interface Wish {
  action: BulkAction;
  target: Target;
  asOf: string;
  spreadMs: number;
  priority: number;
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
export async function nextPiece(wish: Wish, { next }: Progress): Promise<OpsBulkResult> {
  return act("POST", "/bulk", bodyOf(wish, PIECE, next ?? undefined));
}

/** What is wished, as the server takes it. */
export function bodyOf({ action, target, asOf, spreadMs, priority, note }: Wish, limit: number, after?: string): OpsBulkBody {
  return {
    action, ...target, asOf, limit, after,
    spreadMs: action === "retry" && spreadMs > 0 ? spreadMs : undefined,
    priority: action === "prioritize" ? priority : undefined,
    note: note.trim() || undefined,
  };
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
