// What a reader may do to a job beside its actions.
import type { OpsJobAnswer } from "../../api.gen";
import { may } from "../../store";

/** Whether this reader can change what they see: not what is hidden from them, nor what is too large to show. */
export function mayChange({ payloadHidden, truncated }: OpsJobAnswer): boolean {
  return may("enqueue") && may("payload") && payloadHidden !== true && truncated == null;
}

/** Whether there is something that this reader may change. */
export function mayEdit({ status, recurring }: OpsJobAnswer): boolean {
  return status === "pending" && recurring == null && may("reschedule");
}
