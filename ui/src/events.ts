// Server-sent events from the bytes of a response. Pure.

export interface ServerEvent {
  event: string;
  data: string;
  id: string | undefined;
}

/** Takes text as it comes, in whatever pieces, and gives the events that are complete. */
export class EventParser {
  private rest = "";
  private id: string | undefined;

  take(text: string): ServerEvent[] {
    const all = this.rest + text;
    // Half of a CRLF is no line end yet: together with the other half it would look like an empty line.
    const half = all.endsWith("\r") ? 1 : 0;
    const blocks = all
      .slice(0, all.length - half)
      .replace(/\r\n?/g, "\n")
      .split("\n\n");
    this.rest = (blocks.pop() ?? "") + all.slice(all.length - half);
    return blocks.flatMap((block) => this.read(block));
  }

  private read(block: string): ServerEvent[] {
    let event = "message";
    const data: string[] = [];
    for (const line of block.split("\n")) {
      const at = line.indexOf(":");
      if (at === 0) continue; // a comment: the server is alive
      const field = at < 0 ? line : line.slice(0, at);
      const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
      if (field === "event") event = value;
      else if (field === "data") data.push(value);
      else if (field === "id") this.id = value;
    }
    return data.length === 0 ? [] : [{ event, data: data.join("\n"), id: this.id }];
  }
}
