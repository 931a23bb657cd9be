import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useUid } from "./uid";

interface Given {
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
export function Dialog({ title, close, children, wide, locked, closes }: Given) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useUid();
  useEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={box} class={wide ? "wide" : undefined} aria-labelledby={id} onClose={close} onCancel={(event) => locked && event.preventDefault()}>
      <h2 id={id}>{title}</h2>
      {children}
      {closes && <p class="buttons"><button type="button" onClick={close}>Close</button></p>}
    </dialog>
  );
}
