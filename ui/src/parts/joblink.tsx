import { href, under } from "../router";
import { shortened, shortId, visible } from "../text";

export function jobHref(id: string): string {
  return href(under("/jobs", id));
}

/** A job by its name and the end of its id. */
export function JobLink({ id, name }: { id: string; name: string }) {
  return (
    <a href={jobHref(id)}>
      {visible(shortened(name, 60))} <span class="mono">{shortId(id)}</span>
    </a>
  );
}
