// The text of a payload as a value. Pure.

/** What a text stands for; without a value, where it is no JSON. */
export function payloadOf(text: string): { value?: unknown; problem?: string } {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    return { problem: `This is no JSON${placeOf(text, String(error))}.` };
  }
}

/** The text of a value, as the editor begins with it. */
export function textOf(value: unknown): string {
  return JSON.stringify(value ?? null, null, 2);
}

/** Browsers name the place in their own words: as a position, or as line and column. */
function placeOf(text: string, error: string): string {
  const [, line, column] = /line (\d+) column (\d+)/.exec(error) ?? [];
  if (line !== undefined) return `: see line ${line}, column ${column}`;
  const position = /position (\d+)/.exec(error)?.[1];
  if (position === undefined) return text.trim() === "" ? ": write null for no payload" : ": it ends too early";
  const before = text.slice(0, Number(position)).split("\n");
  return `: see line ${before.length}, column ${(before.at(-1) ?? "").length + 1}`;
}
