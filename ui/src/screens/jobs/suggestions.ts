// How the text in the field above the list can go on. Of payloads it has paths, never values. Pure.
import { PATH, PAYLOAD, quoted, TERM, TYPED } from "./filter";

export interface Known {
  names: readonly string[];
  instances: readonly string[];
  /** Paths in payloads. */
  paths: readonly string[];
}

// More is no help to choose from.
const MOST = 40;

/** The text with each word that its last term may become and, after a colon, with each value. */
export function suggestions(text: string, known: Known): string[] {
  const last = text.match(TERM)?.at(-1) ?? "";
  const term = text.endsWith(last) ? last : "";
  const before = text.slice(0, text.length - term.length);
  return (term.includes(":") ? values(known) : words(known))
    .filter((each) => each !== term && each.toLowerCase().startsWith(term.toLowerCase()))
    .slice(0, MOST)
    .map((each) => before + each);
}

function words({ paths }: Known): string[] {
  return [...paths.map((path) => `${PAYLOAD}${path}:`), ...TYPED.map(({ word }) => `${word}:`)];
}

function values({ names, instances }: Known): string[] {
  const known: Partial<Record<string, readonly string[]>> = { name: names, claimedBy: instances, lostBy: instances };
  return TYPED.flatMap(({ key, kind, word, choices = kind === "flag" ? ["true", "false"] : [] }) =>
    (known[key] ?? choices).map((value) => `${word}:${quoted(value)}`),
  );
}

// The end of a text may be missing: were it required, each quote in the rest would be tried in vain.
const TOKEN = /"((?:[^"\\]|\\.)*)"?(?:\s*(:)\s*([{[])?)?|[{}[\]]/g;

/** The paths of single values in a JSON text, which may break off anywhere. */
export function pathsOf(json: string): string[] {
  const found = new Set<string>();
  const open: string[] = []; // the paths of what has begun and not ended
  for (const [token, key, colon, opens] of json.matchAll(TOKEN)) {
    const above = open.at(-1) ?? "";
    if (colon !== undefined) {
      // A dot in a key would look like two of them: with the question mark it is no path.
      const path = (above && `${above}.`) + key?.replaceAll(".", "?");
      if (opens !== undefined) open.push(path);
      else if (PATH.test(path)) found.add(path);
    } else if (token === "{" || token === "[") open.push(above);
    else if (token === "}" || token === "]") open.pop();
  }
  return [...found];
}
