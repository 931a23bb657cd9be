import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { problemOf } from "../../api";
import { say } from "../../store";

interface Props<T> {
  load: () => Promise<T>;
  children: (loaded: T) => ComponentChildren;
}

/** A dialog whose code is fetched when it is opened: few readers of a screen open it. */
export function Later<T>({ load, children }: Props<T>) {
  const loaded = useSignal<T>();
  useEffect(() => {
    load().then(
      (file) => (loaded.value = file),
      (error: unknown) => say({ tone: "bad", text: problemOf(error).sentence }),
    );
  }, []);
  return loaded.value === undefined ? null : children(loaded.value);
}
