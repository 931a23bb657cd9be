import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useUid } from "./uid";

interface Props {
  title: string;
  close: () => void;
  children: ComponentChildren;
  wide?: boolean;
  /** Whether it has a button that closes it. */
  closes?: boolean;
  /** Whether Escape leaves it open: something is under way in it. */
  locked?: boolean;
}

/** A modal dialog, open as long as it is rendered. Focus returns to where it was. */
export function Dialog({ title, close, children, wide, locked, closes }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useUid();
  // Before the next event: what is typed right after the key that opens a dialog belongs to the dialog.
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={wide ? "wide" : undefined}
      aria-labelledby={id}
      onClose={close}
      onCancel={(event) => locked && event.preventDefault()}
    >
      <h2 id={id}>{title}</h2>
      {children}
      {closes && (
        <p class="buttons">
          <button type="button" onClick={close}>
            Close
          </button>
        </p>
      )}
    </dialog>
  );
}
