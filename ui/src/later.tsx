// Screens whose code is fetched when they are first wanted: nobody waits for what is not looked at.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Problem } from "./api";
import { Refused, Skeleton } from "./parts/asking";

type View = ComponentType<{ id: string }>;

/** The screen that `load` gives. After an update of the server its file may be gone: then the page has to be loaded again. */
export function later(load: () => Promise<View>): View {
  let known: View | undefined;
  return function Later({ id }) {
    const missing = useSignal(false);
    const round = useSignal(0);
    useEffect(() => {
      if (known !== undefined) return;
      load().then(
        (view) => {
          known = view;
          missing.value = false;
          round.value += 1;
        },
        () => (missing.value = true),
      );
    }, []);
    void round.value; // drawn again when the code is there
    const Known = known;
    if (Known !== undefined) return <Known id={id} />;
    return missing.value ? <Refused problem={GONE} again={() => window.location.reload()} /> : <Skeleton />;
  };
}

const GONE = new Problem(0, "gone", "The code of this page could not be fetched", "The server may run a new version, or be away. Trying again loads the page anew.");
