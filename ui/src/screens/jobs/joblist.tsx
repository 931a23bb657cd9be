// The list of jobs with everything around it. The screen of a queue shows it with the name fixed.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { at } from "../../api";
import type { OpsJobList, OpsSelection } from "../../api.gen";
import { Answered, useAnswer } from "../../parts/asking";
import { CopyAs } from "../../parts/copy";
import { layout } from "../../layout";
import { change, place } from "../../router";
import { announce } from "../../store";
import { grouped, plural, visible } from "../../text";
import { allowedOperations } from "./bulk";
import { chosenColumns, ChooseColumns } from "./columns";
import { filtersOf, pageQuery, selectionOf, type Filter } from "./filter";
import { FilterBar } from "./filterbar";
import { useListing, type Listing } from "./listing";
import { drop, refilter } from "./refilter";
import { SelectionBar } from "./selectionbar";
import { NOTHING } from "./selecting";
import { JobTable } from "./table";
import { Choice } from "../../parts/choice";

const SIZES = [
  ["25", "25"],
  ["50", "50"],
  ["100", "100"],
] as const;

interface Props {
  title: ComponentChildren;
  /** Stands beside the other buttons. */
  actions?: ComponentChildren;
  name?: string;
}

export function JobList({ title, actions, name }: Props) {
  const { query } = place.value;
  const page = pageQuery(query, name);
  const asked: OpsSelection = selectionOf(page);
  const listing = useListing(page, asked);
  const selection = useSignal(NOTHING);
  const key = page.toString();
  useEffect(() => {
    selection.value = NOTHING;
  }, [key]);
  const columns = chosenColumns();
  const columnKeys = [layout.value, ...columns.map((column) => column.key)].join();
  const kept = useMemo(() => columns, [columnKeys]);
  const maySelect = allowedOperations().length > 0;
  return (
    <>
      <div class="bar">
        {title}
        <span class="grow" />
        <ShowNew listing={listing} />
        {actions}
        <ChooseColumns />
        <CopyAs ways={() => [{ title: "This list", path: at("/jobs", page) }]} />
      </div>
      <FilterBar fixedName={name} jobs={listing.asked.answer?.jobs} />
      {listing.asked.problem !== undefined && query.has("cursor") && (
        <p>
          <FirstPage words="Go to the first page" />
        </p>
      )}
      <Answered asked={listing.asked}>
        {(answer) =>
          answer.jobs.length === 0 ? (
            <Empty name={name} cursor={query.has("cursor")} />
          ) : (
            <>
              {maySelect && (
                <SelectionBar
                  selection={selection}
                  rows={listing.rows}
                  asked={asked}
                  more={answer.hasNext || answer.hasPrevious}
                  again={listing.again}
                />
              )}
              <JobTable
                caption={captionOf(answer)}
                rows={listing.rows}
                columns={kept}
                selection={maySelect ? selection.value : undefined}
                onSelect={(after) => (selection.value = after)}
                onChange={listing.change}
              />
              <Pages answer={answer} />
            </>
          )
        }
      </Answered>
    </>
  );
}

function captionOf(answer: OpsJobList): string {
  const { lookedAt } = answer;
  if (lookedAt != null) {
    const among = answer.capped ? `the ${grouped(lookedAt)} that changed last; more match` : grouped(lookedAt);
    return `${plural(answer.jobs.length, "slowest job")} of ${among}`;
  }
  return `${plural(answer.jobs.length, "job")} on this page`;
}

/** New jobs wait until they are wanted: a list that is read does not jump, nor does it when the button comes. */
function ShowNew({ listing }: { listing: Listing }) {
  const { fresh } = listing;
  useEffect(() => {
    if (fresh > 0) announce(`${fresh} new`);
  }, [fresh]);
  return (
    <div class="fresh">
      {fresh > 0 && (
        <button type="button" data-key="." onClick={listing.again}>
          Show {fresh >= 100 ? "100 or more" : fresh} new
        </button>
      )}
    </div>
  );
}

function Empty({ name, cursor }: { name: string | undefined; cursor: boolean }) {
  const found = filtersOf(place.value.query, (at) => at).filter(
    (each) => name === undefined || each.keys[0] !== "name",
  );
  if (cursor) {
    return (
      <p class="empty">
        There are no more jobs. <FirstPage words="Go to the first page" />
      </p>
    );
  }
  if (found.length === 0) return <p class="empty">There are no jobs{name === undefined ? " yet" : " of this name"}.</p>;
  return (
    <div class="empty">
      <p>No job matches {found.length === 1 ? "this filter" : "all of these filters"}.</p>
      {found.slice(0, MOST_OFFERS).map((each) => (
        <Offer key={each.keys[0]} filter={each} name={name} />
      ))}
    </div>
  );
}

// Each offer is a query that counts.
const MOST_OFFERS = 4;

/** How many jobs there would be without one of the filters. */
function Offer({ filter, name }: { filter: Filter; name: string | undefined }) {
  const without = new URLSearchParams(place.value.query);
  for (const key of filter.keys) without.delete(key);
  const { answer } = useAnswer(at("/jobs/count", pageQuery(without, name, true)));
  if (answer === undefined || answer.count === 0) return null;
  return (
    <p>
      <button type="button" onClick={() => drop(filter.keys)}>
        Drop “{visible(filter.words)}”
      </button>{" "}
      to see {answer.capped ? "more than " : ""}
      {plural(answer.count, "job")}
    </p>
  );
}

function FirstPage({ words }: { words: string }) {
  return (
    <button type="button" disabled={!place.value.query.has("cursor")} onClick={() => refilter({})}>
      {words}
    </button>
  );
}

function Pages({ answer }: { answer: OpsJobList }) {
  const { query } = place.value;
  return (
    <nav class="pages" aria-label="Pages">
      <FirstPage words="First" />
      <button
        type="button"
        disabled={!answer.hasPrevious}
        onClick={() => change({ cursor: answer.previousCursor ?? undefined, direction: "backward" })}
      >
        Previous
      </button>
      <button
        type="button"
        disabled={!answer.hasNext}
        onClick={() => change({ cursor: answer.nextCursor ?? undefined, direction: undefined })}
      >
        Next
      </button>
      <span class="grow" />
      <Choice
        label="Rows"
        value={query.get("limit") ?? "50"}
        options={SIZES}
        onChange={(limit) => refilter({ limit })}
      />
    </nav>
  );
}
