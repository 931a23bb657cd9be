// Screens come when they are wanted, so that the first one waits for no other. The others come once nothing else is
// to be done: then they are there when the server is not.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Problem } from "./api";
import { Refused, Skeleton } from "./parts/asking";
import { isLoggedOut } from "./refusals";

export type View = ComponentType<{ id: string }>;

// By the function that fetches it: a screen that is there is drawn at once.
const there = new Map<() => Promise<View>, View>();

/** Fetch a screen; later calls have it at once. */
export async function fetchScreen(load: () => Promise<View>): Promise<View> {
  const view = there.get(load) ?? (await load());
  there.set(load, view);
  return view;
}

// By then the first screen has what it asked for.
const SOON = 3_000;

/** Fetch all screens, one after the other, when the browser has time. */
export function fetchLater(all: readonly (() => Promise<View>)[]): void {
  setTimeout(async () => {
    for (const load of all) await fetchScreen(load).catch(() => undefined);
  }, SOON);
}

interface Props {
  title: string;
  load: () => Promise<View>;
  id: string;
}

/** A screen, its title until its code is there, or that it could not be fetched. */
export function Lazy({ title, load, id }: Props) {
  const failed = useSignal(false);
  const round = useSignal(0);
  const drawn = useSignal(0);
  useEffect(() => {
    if (there.has(load)) return;
    let stopped = false;
    fetchScreen(load).then(
      () => stopped || (drawn.value += 1),
      () => stopped || (failed.value = true),
    );
    return () => {
      stopped = true;
    };
  }, [load, round.value]);
  const View = drawn.value >= 0 ? there.get(load) : undefined;
  if (View !== undefined) return <View id={id} />;
  const again = () => {
    failed.value = false;
    round.value += 1;
  };
  return (
    <section>
      <h1>{title}</h1>
      {failed.value ? <Refused problem={isLoggedOut.value ? LOGGED_OUT : MISSING} again={again} /> : <Skeleton />}
    </section>
  );
}

const LOGGED_OUT = new Problem(401, "Not authenticated", "Your session has ended.");
const MISSING = new Problem(
  0,
  "This screen could not be loaded",
  "The server does not answer, or has a new version: reload.",
);
