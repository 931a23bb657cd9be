// The rows of the list: a page as it was asked for, and the news about its jobs.
import { useSignal, useSignalEffect, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { at, get } from "../../api";
import type { OpsJob, OpsJobList, OpsSelection } from "../../api.gen";
import { useAnswer, type Question } from "../../parts/asking";
import { now } from "../../store";
import { lastAction, paused, snapshot } from "../../stream";
import { newAbove, newsOf, rowsOf, type News, type Row } from "./matching";

// Twice as often would ask more than the eye can follow; half as often looks stuck.
const EVERY = 2000;
// A list that shows so many new jobs need not count on.
const MOST_NEW = 100;
// If none of the first few is new, nothing is.
const GLANCE = 10;

export interface Listing {
  asked: Question<OpsJobList>;
  rows: readonly Row[];
  /** How many new jobs wait to be shown. */
  fresh: number;
  /** Ask for the page again, and show what is new. */
  again: () => void;
  /** A job has changed by an action of this reader. */
  change: (id: string, after: OpsJob | null) => void;
}

export function useListing(query: URLSearchParams, selection: OpsSelection): Listing {
  const asked = useAnswer(at("/jobs", query));
  const news = useSignal<News>(new Map());
  const fresh = useSignal(0);
  const page = asked.answer;
  useEffect(() => {
    news.value = new Map();
    fresh.value = 0;
  }, [page]);
  useNews(query, selection, asked.problem === undefined ? page : undefined, news, fresh);
  return {
    asked,
    // Only what is due changes by itself; other rows need not be drawn each second.
    rows: page === undefined ? [] : rowsOf(page.jobs, news.value, selection, selection.due == null ? 0 : now.value),
    fresh: fresh.value,
    again: asked.again,
    change: (id, after) => (news.value = new Map(news.value).set(id, after)),
  };
}

/** Look at the jobs on screen again when something happened among them, and for new ones above them. */
function useNews(
  query: URLSearchParams,
  selection: OpsSelection,
  page: OpsJobList | undefined,
  news: Signal<News>,
  fresh: Signal<number>,
): void {
  const busy = useRef(false);
  const lookedAt = useRef(0);
  const seen = useRef<unknown>(undefined);
  // The effect runs for each tick of the stream, and must not see the page of an earlier one.
  const current = useRef({ query, page });
  current.current = { query, page };
  const look = async () => {
    const { query, page } = current.current;
    if (page === undefined || busy.current || document.hidden) return;
    [busy.current, lookedAt.current] = [true, Date.now()];
    try {
      const [known, above] = await Promise.all([
        askFor(page.jobs),
        query.has("cursor") ? 0 : countNew(query, page.jobs, fresh.peek()),
      ]);
      if (current.current.page !== page) return;
      news.value = known;
      fresh.value = above;
    } catch {
      // The next tick tries again; the banner says if the database is away.
    } finally {
      busy.current = false;
    }
  };
  useSignalEffect(() => {
    const shown = snapshot.value;
    const activity = selection.name == null ? shown : shown?.rows.get(selection.name);
    if (paused.value || activity === seen.current || Date.now() - lookedAt.current < EVERY) return;
    seen.current = activity;
    void look();
  });
  useSignalEffect(() => {
    if (lastAction.value !== undefined) void look();
  });
}

async function askFor(jobs: readonly OpsJob[]): Promise<News> {
  const ids = jobs.map((job) => job.id);
  if (ids.length === 0) return new Map();
  const query = new URLSearchParams(ids.map((id) => ["id", id]));
  query.set("limit", String(ids.length));
  return newsOf(ids, (await get(at("/jobs", query))).jobs);
}

/** New jobs come first only where the newest do. */
async function countNew(query: URLSearchParams, jobs: readonly OpsJob[], before: number): Promise<number> {
  if (query.get("order") === "asc" || query.has("id") || before >= MOST_NEW) return before;
  const known = new Set(jobs.map((job) => job.id));
  const head = await headOf(query, GLANCE);
  if (newAbove(head, known) === 0) return 0;
  return newAbove(await headOf(query, MOST_NEW), known);
}

async function headOf(query: URLSearchParams, limit: number): Promise<readonly OpsJob[]> {
  const head = new URLSearchParams(query);
  head.set("limit", String(limit));
  return (await get(at("/jobs", head))).jobs;
}
