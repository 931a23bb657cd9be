// The filters above the list. All of them stand in the address.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { OpsJob } from "../../api.gen";
import { bound } from "../../parts/fields";
import { NameField, names } from "../../parts/namefield";
import { useUid } from "../../parts/uid";
import { place } from "../../router";
import { now, zone } from "../../store";
import { snapshot } from "../../stream";
import { shortened, visible } from "../../text";
import { absolute, count } from "../../time";
import { filtersOf, parse, textOf, toggled, type StatusName } from "./filter";
import { drop, refilter } from "./refilter";
import { pathsOf, suggestions } from "./suggestions";
import { TimeRange } from "./timerange";
import { Choice } from "../../parts/choice";

interface Props {
  fixedName?: string | undefined;
  /** Those of the page; paths in their payloads are suggested. */
  jobs: readonly OpsJob[] | undefined;
}

export function FilterBar({ fixedName, jobs }: Props) {
  return (
    <div class="filters" role="search" aria-label="Filter jobs">
      <StatusChips fixedName={fixedName} />
      <div class="bar">
        {fixedName === undefined && <NameField />}
        <TextField fixedName={fixedName} jobs={jobs} />
        <TimeRange />
        <Sorting />
      </div>
      <Filters fixedName={fixedName} />
    </div>
  );
}

const CHIPS: readonly [status: StatusName, word: string][] = [
  ["pending", "pending"],
  ["processing", "running"],
  ["completed", "completed"],
  ["failed", "failed"],
  ["cancelled", "cancelled"],
];

function StatusChips({ fixedName }: { fixedName: string | undefined }) {
  const { query } = place.value;
  const chosen = query.getAll("status");
  const counts = countsOf(fixedName ?? query.get("name"));
  const due = query.get("due");
  const waiting = query.get("waiting") === "true";
  return (
    <div class="chips" role="group" aria-label="Status">
      {CHIPS.map(([status, word]) => (
        <Chip
          key={status}
          word={word}
          number={counts[status]}
          ahead={status === "processing" ? counts.ahead : undefined}
          on={chosen.includes(status) || (status === "pending" && due !== null && chosen.length === 0)}
          press={() => refilter(toggled(query, status))}
        />
      ))}
      <Chip
        word="waiting"
        number={undefined}
        on={waiting}
        press={() => refilter({ status: undefined, due: undefined, waiting: waiting ? undefined : "true" })}
      />
      {(due !== null || (chosen.length === 1 && chosen[0] === "pending")) &&
        (["now", "later"] as const).map((when) => (
          <Chip
            key={when}
            word={when === "now" ? "due now" : "due later"}
            number={counts[when]}
            on={due === when}
            press={() => refilter({ status: ["pending"], due: due === when ? undefined : when })}
          />
        ))}
    </div>
  );
}

function Chip({
  word,
  number,
  ahead = 0,
  on,
  press,
}: {
  word: string;
  number: number | undefined;
  /** Jobs that the chip finds besides: they are claimed, and do not run. */
  ahead?: number | undefined;
  on: boolean;
  press: () => void;
}) {
  return (
    <button type="button" class="chip" aria-pressed={on} onClick={press}>
      {word}
      {number !== undefined && <span class="faint"> {count(number)}</span>}
      {ahead > 0 && <span class="faint"> + {count(ahead)} claimed ahead</span>}
    </button>
  );
}

/** How many there are of each state, as far as the live numbers know. */
function countsOf(name: string | null): Partial<Record<StatusName | "now" | "later" | "ahead", number | undefined>> {
  const shown = snapshot.value;
  const known =
    name === null ? shown?.totals : (shown?.rows.get(name) as Partial<Record<string, number | null>> | undefined);
  if (known === undefined) return {};
  const of = (key: string) => known[key] ?? undefined;
  const [now, later] = [of("due") ?? 0, of("later") ?? 0];
  return {
    pending: now + later + (of("parked") ?? 0),
    now,
    later,
    processing: of("running"),
    ahead: of("claimedAhead"),
    completed: of("completed"),
    failed: of("failed"),
    cancelled: of("cancelled"),
  };
}

/** The text box that understands ids and words such as `key:`. */
function TextField({ fixedName, jobs }: Props) {
  const id = useUid();
  const { query } = place.value;
  const known = textOf(query);
  const text = useSignal(known);
  const problem = useSignal<string>();
  useEffect(() => {
    text.value = known;
    problem.value = undefined;
  }, [known]);
  const submit = (event: Event) => {
    event.preventDefault();
    const parts = parse(text.value, names(), fixedName ?? query.get("name") ?? undefined);
    problem.value = typeof parts === "string" ? parts : undefined;
    if (typeof parts === "string") return;
    const before = [...query.keys()].filter((key) => key.startsWith("payload."));
    refilter({ ...Object.fromEntries(before.map((key) => [key, undefined])), ...parts });
  };
  return (
    <form class="grow find" onSubmit={submit}>
      <label class="choice grow">
        Find
        <input
          type="search"
          class="grow"
          data-find
          {...bound(text)}
          list={id}
          placeholder="id, key:…, payload.a.b:42"
          aria-invalid={problem.value !== undefined}
          aria-describedby="find-problem"
        />
        <Suggestions id={id} text={text} jobs={jobs} />
      </label>
      <button type="submit">Find</button>
      <p id="find-problem" class="problem" role="status">
        {problem.value === undefined ? "" : visible(problem.value)}
      </p>
    </form>
  );
}

/** On its own, as it is drawn with each tick. */
function Suggestions({ id, text, jobs }: { id: string; text: Signal<string>; jobs: Props["jobs"] }) {
  // There are no previews for those who may not see payloads.
  const paths = useMemo(() => [...new Set(jobs?.flatMap((job) => pathsOf(job.payloadPreview ?? "")))], [jobs]);
  const instances = [...(snapshot.value?.instances.keys() ?? [])];
  return (
    <datalist id={id}>
      {suggestions(text.value, { names: names(), instances, paths }).map((each) => (
        <option key={each} value={each} />
      ))}
    </datalist>
  );
}

const ORDERS = [
  ["", "newest first"],
  ["id asc", "oldest first"],
  ["updatedAt desc", "last changed first"],
  ["nextRunAt asc", "next due first"],
  ["ran desc", "slowest first"],
  ["waited desc", "longest wait first"],
] as const;

function Sorting() {
  const { query } = place.value;
  if (query.has("failed")) return null; // a group of failures has its own order
  const [sort, order] = [query.get("sort"), query.get("order") ?? "desc"];
  const given = sort === null ? "" : `${sort} ${order}`;
  return (
    <Choice
      label="Order"
      value={given}
      options={ORDERS}
      onChange={(value) => {
        const [to, way] = value.split(" ");
        refilter({ sort: to, order: way });
      }}
    />
  );
}

/** The filters that are set, each with a button that drops it. */
export function Filters({ fixedName }: { fixedName?: string | undefined }) {
  const time = (at: string) => (Number.isNaN(Date.parse(at)) ? at : absolute(Date.parse(at), zone.value, now.value));
  // States are pressed above, and a fixed name is the title.
  const pressed = place.value.query.get("waiting") === "true" ? ["status", "waiting"] : ["status"];
  const elsewhere = fixedName === undefined ? pressed : [...pressed, "name"];
  const found = filtersOf(place.value.query, time).filter((each) => !elsewhere.includes(each.keys[0] ?? ""));
  if (found.length === 0) return null;
  return (
    <ul class="chips" aria-label="Filters that are set">
      {found.map(({ keys, words }) => (
        <li key={keys[0]} class="set">
          {visible(shortened(words, 120))}
          <button
            type="button"
            class="bare"
            aria-label={`Remove the filter ${visible(words)}`}
            title="Remove this filter"
            onClick={() => drop(keys)}
          >
            ×
          </button>
        </li>
      ))}
      {found.length > 1 && (
        <li>
          <button type="button" class="bare" onClick={() => drop(found.flatMap((each) => each.keys))}>
            Drop all filters
          </button>
        </li>
      )}
    </ul>
  );
}
