// Icons of 16 px, drawn as lines in the colour of the text beside them.

const PATHS = {
  // states of jobs, runs, schedules and instances
  due: "M8 4.5V8l2.3 1.6M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  later: "M2.5 6.5h11M5 2v2.5M11 2v2.5M3.5 3.5h9a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1v-8a1 1 0 0 1 1-1Z",
  waiting: "M4 2h8M4 14h8M5 2v2.5L8 8l3-3.5V2M5 14v-2.5L8 8l3 3.5V14",
  running: "M14 8a6 6 0 1 1-6-6M6.5 5.5v5l4-2.5-4-2.5Z",
  completed: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM5.5 8.2l1.7 1.7 3.3-3.6",
  failed: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM6 6l4 4M10 6l-4 4",
  retrying: "M13.5 8a5.5 5.5 0 1 1-1.7-4M12 1.5V4.2H9.3",
  cancelled: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM3.8 12.2l8.4-8.4",
  stopping: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM6 6h4v4H6V6Z",
  silent: "M8 2 1.8 13h12.4L8 2ZM8 6.5v3M8 11.3v.1",
  paused: "M5.5 3.5v9M10.5 3.5v9",
  skipped: "M3 4l5 4-5 4V4ZM8.5 4l5 4-5 4V4Z",
  stored: "M3 5.5 8 3l5 2.5v5L8 13l-5-2.5v-5ZM3 5.5 8 8l5-2.5M8 8v5",
  alive: "M1.5 8.5h3L6.5 3l3 10 2-4.5h3",
  // screens
  overview: "M2.5 2.5h4.5v6H2.5v-6ZM9 2.5h4.5V6H9V2.5ZM9 8h4.5v5.5H9V8ZM2.5 10.5H7v3H2.5v-3Z",
  jobs: "M2.5 4h.01M2.5 8h.01M2.5 12h.01M5.5 4h8M5.5 8h8M5.5 12h8",
  queues: "M2.5 3h11v3h-11V3ZM2.5 8h11M2.5 10.5h11M2.5 13h11",
  schedules: "M8 4.5V8l2.3 1.6M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  instances: "M2.5 3h11v4h-11V3ZM2.5 9h11v4h-11V9ZM5 5h.01M5 11h.01",
  latency: "M2 13.5h12M3.5 11V8.5M6.5 11V4.5M9.5 11V6.5M12.5 11V2.5",
  audit: "M4 2h5.5L12 4.5V14H4V2ZM6 6.5h4M6 9h4M6 11.5h2.5",
  batches: "M2.5 6 8 3l5.5 3L8 9 2.5 6ZM2.5 9 8 12l5.5-3",
  lines: "M2 5h8M2 8h12M2 11h5",
  // controls
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  search: "M11.5 7A4.5 4.5 0 1 1 2.5 7a4.5 4.5 0 0 1 9 0ZM10.3 10.3l3.2 3.2",
  user: "M10.5 5.5a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0ZM3 13.5c.6-2.4 2.5-3.5 5-3.5s4.4 1.1 5 3.5",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  check: "M3 8.5 6.3 12 13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8v-8ZM3.5 10.5h-1v-8h8v1",
  play: "M5 3.5v9l7-4.5-7-4.5Z",
  plus: "M8 3v10M3 8h10",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3 3 13Z",
  delete: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5",
  stop: "M4.5 4.5h7v7h-7v-7Z",
  link: "M6.5 9.5l3-3M7 5l1.5-1.5a2.8 2.8 0 0 1 4 4L11 9M9 11l-1.5 1.5a2.8 2.8 0 0 1-4-4L5 7",
  filter: "M2.5 4h11M4.5 8h7M6.5 12h3",
  columns: "M2.5 3h11v10h-11V3ZM6.2 3v10M9.8 3v10",
  info: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0ZM8 7.5v3.3M8 5.2v.1",
  bolt: "M8.5 2 4 9h3.5L7 14l4.8-7.2H8.2L8.5 2Z",
} as const;

export type IconName = keyof typeof PATHS;

/** An icon; with a label where no text beside it says the same. */
export function Icon({ name, label }: { name: IconName; label?: string }) {
  return (
    <svg
      class="icon"
      viewBox="0 0 16 16"
      {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" })}
    >
      <path d={PATHS[name]} />
    </svg>
  );
}

/** An icon and words beside it; below 800 px the icon alone is seen. */
export function Labelled({ name, words }: { name: IconName; words: string }) {
  return (
    <>
      <Icon name={name} />
      <span class="words">{words}</span>
    </>
  );
}

export function isIcon(name: string): name is IconName {
  return name in PATHS;
}
