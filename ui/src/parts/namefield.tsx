import { change, place } from "../router";
import { snapshot } from "../stream";
import { useUid } from "./uid";

/** The names that there are now. */
export function names(): string[] {
  return [...(snapshot.value?.rows.keys() ?? [])];
}

/** A field for the name in the address, with the names that there are as suggestions. */
export function NameField() {
  const id = useUid();
  return (
    <label class="choice">
      Name
      <input
        type="search"
        list={id}
        placeholder="all names"
        value={place.value.query.get("name") ?? ""}
        onChange={(event) =>
          change({ name: event.currentTarget.value.trim(), cursor: undefined, direction: undefined })
        }
      />
      <Suggestions id={id} />
    </label>
  );
}

/** On its own: to draw the field with each tick would take away what somebody is typing into it. */
function Suggestions({ id }: { id: string }) {
  return (
    <datalist id={id}>
      {names().map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  );
}
