// A question to the server and what its place shows meanwhile: a skeleton, the answer, or why there is none.
import { useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { get, problemOf, type Address, type Problem } from "../api";
import { outage } from "../outage";
import { visible } from "../text";
import { LogIn } from "./login";

export interface Question<T> {
  /** The question, below the API. */
  address: Address<T> | undefined;
  answer: T | undefined;
  problem: Problem | undefined;
  /** Whether an answer is on its way. */
  asking: boolean;
  again: () => void;
}

// A question that was refused is asked again: twice as often would burden a server that comes up.
const AGAIN_AFTER = 3_000;

/** Ask, and ask again when the question changes or a refusal may have passed. An answer stays until the next one. */
export function useAnswer<T>(address: Address<T> | undefined): Question<T> {
  const answer = useSignal<T>();
  const problem = useSignal<Problem>();
  const asking = useSignal(true);
  const round = useSignal(0);
  const path = address?.split("?")[0];
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
    get(address, stop.signal).then(
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
  const again = () => {
    // Who asks more often than a slow server answers must not end each question before its answer.
    if (asking.value && address) wanted.current = true;
    else round.value += 1;
  };
  useEffect(() => {
    if (!problem.value?.passes) return;
    const timer = setInterval(() => !document.hidden && !asking.peek() && again(), AGAIN_AFTER);
    return () => clearInterval(timer);
  }, [problem.value?.passes]);
  useSignalEffect(() => {
    // The database is back: nobody has to wait for the next round.
    if (outage.value === undefined && problem.peek()?.passes && !asking.peek()) round.value = round.peek() + 1;
  });
  return { address, answer: answer.value, problem: problem.value, asking: asking.value, again };
}

/** Ask when nobody has typed for a while; a question that is outdated is given up. */
export function useTyped(ask: (stop: AbortSignal) => void, typed: readonly string[], pauseMs: number): void {
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => ask(stop.signal), pauseMs);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, typed);
}

/** The place of an answer. */
export function Answered<T>({ asked, children }: { asked: Question<T>; children: (answer: T) => ComponentChildren }) {
  if (asked.problem !== undefined && asked.answer === undefined)
    return <Refused problem={asked.problem} again={asked.again} />;
  if (asked.answer === undefined) return <Skeleton />;
  return (
    <>
      {/* The banner says that there is no database, once for the whole page. */}
      {asked.problem !== undefined && !(asked.problem.passes && outage.value) && (
        <Refused problem={asked.problem} again={asked.again} />
      )}
      {children(asked.answer)}
    </>
  );
}

/** Why there is no answer, and the button that asks again. */
export function Refused({ problem, again }: { problem: Problem; again: () => void }) {
  return (
    <div class="refused" role="alert">
      <p>
        <strong>{problem.title}.</strong> {problem.message !== `${problem.title}.` && visible(problem.message)}
      </p>
      {problem.status === 401 ? (
        <LogIn />
      ) : (
        problem.status !== 403 && (
          <button type="button" onClick={again}>
            Try again
          </button>
        )
      )}
      {problem.requestId !== undefined && <p class="faint">Request {problem.requestId}</p>}
    </div>
  );
}

/** Shown after a moment: an answer that comes at once makes nothing flicker. */
export function Skeleton() {
  return (
    <div class="skeleton" role="status">
      <span class="hidden-text">Loading</span>
      <i />
      <i />
      <i />
    </div>
  );
}
