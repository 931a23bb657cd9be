// What refusals say about more than one question.
import { signal } from "@preact/signals";

/** When the first question was refused because the database is away, by this browser's clock; until one is answered. */
export const refusedSince = signal<number>();
/** Whether the last question was refused because nobody is logged in. */
export const isLoggedOut = signal(false);

/** Told of each refusal. */
export function hearRefusal(status: number, type: string | undefined): void {
  if (status === 401) isLoggedOut.value = true;
  if (type?.endsWith(":database-away")) refusedSince.value ??= Date.now();
}

/** Told of what came from the database. */
export function hearDatabase(): void {
  refusedSince.value = undefined;
}
