import type { ComponentChildren } from "preact";

interface Props {
  title: ComponentChildren;
  /** On the right of the heading: links and buttons. */
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** A part of a screen with a frame and a heading. */
export function Card({ title, actions, children }: Props) {
  return (
    <section class="card">
      <div class="bar">
        <h2>{title}</h2>
        <span class="grow" />
        {actions}
      </div>
      {children}
    </section>
  );
}
