import { useSignal } from "@preact/signals";
import { Problem } from "../api";
import { say } from "../store";
import { visible } from "../text";

/** What a button does: it is off until the answer, and a refusal is said. */
export function usePress(run: () => Promise<void>): { busy: boolean; press: () => void } {
  const busy = useSignal(false);
  const press = () => {
    busy.value = true;
    run()
      .catch((error: unknown) => say({ tone: "bad", text: error instanceof Problem ? `${error.title}. ${visible(error.message)}` : String(error) }))
      .finally(() => (busy.value = false));
  };
  return { busy: busy.value, press };
}
