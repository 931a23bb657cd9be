// Times in fields of forms: <input type="datetime-local"> knows no zone. Pure.
import type { Zone } from "./time";

/** A moment as such a field has it. */
export function toField(at: number, zone: Zone): string {
  const shift = zone === "utc" ? 0 : new Date(at).getTimezoneOffset() * 60_000;
  return new Date(at - shift).toISOString().slice(0, 19);
}

/** The moment that a field shows; undefined while it is empty or not complete. */
export function fromField(text: string, zone: Zone): number | undefined {
  const at = Date.parse(zone === "utc" ? `${text}Z` : text);
  return text === "" || Number.isNaN(at) ? undefined : at;
}
