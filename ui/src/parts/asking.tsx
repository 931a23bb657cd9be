// A question to the server and what its place shows meanwhile: a skeleton, the answer, or why there is none.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { get, problemOf, type Problem } from "../api";
import { withQuery, type Query } from "../router";
import { visible } from "../text";

export interface Asked<T> {
  /** The question, below the API. */
  address: string | undefined;
  answer: T | undefined;
  problem: Problem | undefined;
  /** Whether an answer is on its way. */
  asking: boolean;
  again: () => void;
}

/** Ask, and ask again when the question changes. An answer stays until the next one is there. */
export function useAnswer<T>(path: string | undefined, query?: Query): Asked<T> {
  const answer = useSignal<T>();
  const problem = useSignal<Problem>();
  const asking = useSignal(true);
  const round = useSignal(0);
  const address = path && withQuery(path, query);
  const lastPath = useRef(path);
  const wanted = useRef(false);
  const done = () => {
    asking.value = false;
    if (wanted.current) round.value += 1;
    wanted.current = false;
  };
  useEffect(() => {
    if (!address) return;
    if (lastPath.current !== path) answer.value = undefined;
    lastPath.current = path;
    const stop = new AbortController();
    asking.value = true;
    get<T>(address, stop.signal).then(
      (given) => {
        [answer.value, problem.value] = [given, undefined];
        done();
      },
      (error: unknown) => {
        if (stop.signal.aborted) return;
        problem.value = problemOf(error);
        done();
      },
    );
    return () => stop.abort();
  }, [address, round.value]);
  return {
    address,
    answer: answer.value,
    problem: problem.value,
    asking: asking.value,
    again: () => {
      // Who asks more often than a slow server answers must not end each question before its answer.
      if (asking.value && address) wanted.current = true;
      else round.value += 1;
    },
  };
}

/** The place of an answer. */
export function Answered<T>({ asked, children }: { asked: Asked<T>; children: (answer: T) => ComponentChildren }) {
  if (asked.problem !== undefined && asked.answer === undefined) return <Refused problem={asked.problem} again={asked.again} />;
  if (asked.answer === undefined) return <Skeleton />;
  return (
    <>
      {asked.problem !== undefined && <Refused problem={asked.problem} again={asked.again} />}
      {children(asked.answer)}
    </>
  );
}

/** Why there is no answer, and the button that asks again. */
export function Refused({ problem, again }: { problem: Problem; again: () => void }) {
  return (
    <div class="refused" role="alert">
      <p><strong>{problem.title}.</strong> {visible(problem.message)}</p>
      {problem.status === 403 ? null : <button type="button" onClick={again}>Try again</button>}
      {problem.requestId !== undefined && <p class="faint">Request {problem.requestId}</p>}
    </div>
  );
}

/** Shown after a moment: an answer that comes at once makes nothing flicker. */
export function Skeleton() {
  return (
    <div class="skeleton" role="status">
      <span class="hidden-text">Loading</span>
      <i /><i /><i />
    </div>
  );
}
