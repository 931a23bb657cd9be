import { snapshot } from "../stream";
import { visible } from "../text";

export function Overview() {
  const rows = snapshot.value === undefined ? [] : [...snapshot.value.rows.values()];
  return (
    <section>
      <h1>Overview</h1>
      <ul>{rows.map((row) => <li key={row.name}>{visible(row.name)}: {row.due}</li>)}</ul>
    </section>
  );
}
