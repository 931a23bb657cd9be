import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";

interface Props {
  label: ComponentChildren;
  children: (close: () => void) => ComponentChildren;
  [attribute: string]: unknown;
}

/** A button, and the dialog that it opens. */
export function Opener({ label, children, ...attributes }: Props) {
  const open = useSignal(false);
  return (
    <>
      <button type="button" {...attributes} onClick={() => (open.value = true)}>
        {label}
      </button>
      {open.value && children(() => (open.value = false))}
    </>
  );
}
