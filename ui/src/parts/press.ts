import { useSignal } from "@preact/signals";
import { problemOf } from "../api";
import { say } from "../store";

/** What a button does: it is off until the answer, and a refusal is said. */
export function usePress(run: () => Promise<void>): { busy: boolean; press: () => void } {
  const busy = useSignal(false);
  const press = () => {
    busy.value = true;
    run()
      .catch((error: unknown) => say({ tone: "bad", text: problemOf(error).sentence }))
      .finally(() => (busy.value = false));
  };
  return { busy: busy.value, press };
}
