import { jobHref } from "../screens/job/acting";
import { shortened, shortId, visible } from "../text";

/** A job by its name and the end of its id. */
export function JobLink({ id, name }: { id: string; name: string }) {
  return <a href={jobHref(id)}>{visible(shortened(name, 60))} <span class="mono">{shortId(id)}</span></a>;
}
