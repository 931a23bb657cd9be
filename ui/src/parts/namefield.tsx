import { useId } from "preact/hooks";
import { change, place } from "../router";
import { snapshot } from "../stream";

/** A field for a part of the query that is a job name, with the names that there are as suggestions. */
export function NameField({ label = "Name", part = "name" }: { label?: string; part?: string }) {
  const id = useId();
  return (
    <label class="choice">
      {label}
      <input
        type="search" list={id} placeholder="all" value={place.value.query.get(part) ?? ""}
        onChange={(event) => change({ [part]: event.currentTarget.value.trim() || undefined, cursor: undefined })}
      />
      <datalist id={id}>{[...(snapshot.value?.rows.keys() ?? [])].map((name) => <option key={name} value={name} />)}</datalist>
    </label>
  );
}
