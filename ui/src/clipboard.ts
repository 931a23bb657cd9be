// Put text on the clipboard, also where the page is no secure context (plain HTTP to another host).
import { say } from "./store";

/** Copy, and say so. */
export async function copy(text: string, what: string): Promise<void> {
  const done = await write(text);
  say(done ? { tone: "good", text: `Copied ${what}.` } : { tone: "bad", text: `The browser cannot copy ${what}.` });
}

async function write(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return writeOldWay(text);
  }
}

/** By a selected field. It stands in the open dialog, if there is one: nothing outside of it can have the focus. */
function writeOldWay(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden-text";
  const focused = document.activeElement;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}
