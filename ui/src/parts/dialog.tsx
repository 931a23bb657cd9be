import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

interface Given {
  title: string;
  close: () => void;
  children: ComponentChildren;
  wide?: boolean;
  /** Whether Escape leaves it open: something is under way in it. */
  locked?: boolean;
}

/** A modal dialog, open as long as it is rendered. Focus returns to where it was. */
export function Dialog({ title, close, children, wide = false, locked = false }: Given) {
  const box = useRef<HTMLDialogElement>(null);
  const id = useId();
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
    </dialog>
  );
}
