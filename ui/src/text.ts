// Stored text is data from others. It is shown as text, and what cannot be seen is made visible. Pure.

// Control characters, line separators, bidi marks and other invisible ones could break a line or turn it round.
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const IN_A_LINE = /[\t\n]/g;

/** A text on one line, with marks such as \u202e for what would be invisible. */
export function visible(text: string): string {
  return shown(text).replace(IN_A_LINE, mark);
}

/** The same for texts of many lines, such as tracebacks. */
export function shown(text: string): string {
  return text.replace(HIDDEN, mark);
}

function mark(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** The beginning of a text that is too long for its place. */
export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** An id as lists show it: its last characters tell jobs of the same second apart. */
export function shortId(id: string): string {
  return id.length <= 10 ? visible(id) : `…${visible(id.slice(-8))}`;
}

/** A value of JSON; undefined if the text is none. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** "12,480". */
export function grouped(count: number): string {
  return count.toLocaleString("en-GB");
}

/** "1 job", "2 jobs". */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}
