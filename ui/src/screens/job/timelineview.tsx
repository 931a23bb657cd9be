// The time line as a picture: one lane an attempt. Hover and focus show the numbers; arrow keys move.
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import type { OpsJobAnswer } from "../../api.gen";
import { useWidth } from "../../charts/plot";
import { Table, type Column } from "../../parts/table";
import { When, Took } from "../../parts/when";
import { now, zone } from "../../store";
import { shortened, visible } from "../../text";
import { STEP_WORDS } from "./steps";
import { absolute, duration, exact } from "../../time";
import {
  axisOf,
  lookOf,
  meaningOf,
  meaningsOf,
  timeLine,
  type Axis,
  type Kind,
  type Lane,
  type Segment,
  type StepBar,
  type TimeLine,
} from "./timeline";

const LANE = 28;
const TOP = 22;
const LEFT = 34;
const STEP = 22;
// Of more steps the newest are drawn; the table has them all.
const MOST_STEPS = 30;
// The room of a letter beside a bar.
const LETTER = 6.5;
// The mark of a break takes half of it, on the right: it stands on no text.
const BREAK = 40;

const WORDS: Record<Kind, string> = {
  planned: "was not due yet for",
  wait: "waited, due, for",
  run: "ran for",
  backoff: "backed off for",
  rest: "rested for",
  suspended: "waited without a process for",
  silent: "had a silent owner for",
};

/** `older` is what leads to attempts before the first. */
export function TimeLineView({ job, older }: { job: OpsJobAnswer; older?: ComponentChildren }) {
  const picture = useRef<SVGSVGElement>(null);
  const width = useWidth(picture);
  const moves = job.status === "pending" || job.status === "processing";
  const at = moves ? now.value : 0;
  const line = useMemo(() => timeLine(job, at), [job, at]);
  const said = useSignal<string>();
  if (line.lanes.length === 0) return null;
  return (
    <section aria-labelledby="time-line">
      <h2 id="time-line">Time line</h2>
      {older}
      <Picture line={line} width={width} picture={picture} said={said} job={job} />
      <p class="readout faint" aria-hidden="true">
        {said.value ?? `From ${exact(line.from, zone.value)}, ${duration(line.to - line.from)} in all.`}
      </p>
      <div class="bar">
        <Key line={line} />
      </div>
      <details>
        <summary>The same as a table</summary>
        <Attempts line={line} />
      </details>
    </section>
  );
}

interface PictureProps {
  line: TimeLine;
  width: number;
  picture: { current: SVGSVGElement | null };
  said: Signal<string | undefined>;
  job: OpsJobAnswer;
}

function Picture({ line, width, picture, said, job }: PictureProps) {
  const axis = axisOf(line, width - LEFT - 8);
  const steps = line.steps.slice(-MOST_STEPS);
  const top = TOP + line.lanes.length * LANE;
  const height = top + steps.length * STEP + 6;
  const move = (event: KeyboardEvent) => {
    const step =
      event.key === "ArrowRight" || event.key === "ArrowDown"
        ? 1
        : event.key === "ArrowLeft" || event.key === "ArrowUp"
          ? -1
          : 0;
    if (step === 0) return;
    event.preventDefault();
    const parts = [...(picture.current?.querySelectorAll<SVGElement>("[role=img]") ?? [])];
    parts[Math.max(0, Math.min(parts.length - 1, parts.indexOf(document.activeElement as SVGElement) + step))]?.focus();
  };
  return (
    <svg
      ref={picture}
      class="time-line"
      width="100%"
      height={height}
      role="group"
      aria-label="Time line. Arrow keys move along it."
      onKeyDown={move}
      onPointerLeave={() => (said.value = undefined)}
    >
      <defs>
        <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect class="hatch-ground" width="6" height="6" />
          <line class="hatch" x1="0" y1="0" x2="0" y2="6" />
        </pattern>
      </defs>
      <g transform={`translate(${LEFT} 0)`}>
        <text class="axis-text" x="0" y="12">
          {absolute(line.from, zone.value, now.value)}
        </text>
        {axis.ticks.map((tick) => (
          <g key={tick.x}>
            <line class="axis" x1={tick.x} x2={tick.x} y1={TOP - 6} y2={height - 6} />
            <text class="axis-text" x={tick.x} y="12" text-anchor="middle">
              {tick.text}
            </text>
          </g>
        ))}
        {line.lanes.map((lane, index) => (
          <LaneView key={lane.number} lane={lane} axis={axis} y={TOP + index * LANE} first={index === 0} said={said} />
        ))}
        {(job.status === "pending" || job.status === "processing") && (
          <line
            class="now-line"
            x1={axis.x(Math.min(now.value, line.to))}
            x2={axis.x(Math.min(now.value, line.to))}
            y1={TOP - 6}
            y2={height - 4}
          />
        )}
        {steps.map((step, index) => (
          <StepView
            key={step.name}
            step={step}
            axis={axis}
            y={top + index * STEP}
            width={width - LEFT - 8}
            said={said}
          />
        ))}
        {line.marks
          .filter((mark) => mark.at >= line.from && mark.at <= line.to)
          .map((mark, index) => (
            <g
              key={index}
              role="img"
              tabIndex={-1}
              aria-label={visible(mark.words)}
              class={mark.isSignal ? "action-mark signal-mark" : "action-mark"}
              transform={`translate(${axis.x(mark.at)} ${TOP - 4})`}
              {...telling(said, `${visible(mark.words)}, ${exact(mark.at, zone.value)}`)}
            >
              <line y1="0" y2={height - TOP} />
              <path d={mark.isSignal ? "M0 -6l5 5-5 5-5-5z" : "M-5 -5h10l-5 8z"} />
            </g>
          ))}
      </g>
    </svg>
  );
}

function telling(said: Signal<string | undefined>, words: string) {
  const tell = () => (said.value = words);
  return { onPointerEnter: tell, onFocus: tell };
}

function LaneView({
  lane,
  axis,
  y,
  first,
  said,
}: {
  lane: Lane;
  axis: Axis;
  y: number;
  first: boolean;
  said: Signal<string | undefined>;
}) {
  return (
    <g>
      <text class="axis-text" x="-8" y={y + 17} text-anchor="end">
        {lane.number}
      </text>
      {lane.segments.map((segment, index) => (
        <SegmentView
          key={index}
          lane={lane}
          segment={segment}
          axis={axis}
          y={y}
          tabIndex={first && index === 0 ? 0 : -1}
          said={said}
        />
      ))}
    </g>
  );
}

interface SegmentProps {
  lane: Lane;
  segment: Segment;
  axis: Axis;
  y: number;
  tabIndex: number;
  said: Signal<string | undefined>;
}

function SegmentView({ lane, segment, axis, y, tabIndex, said }: SegmentProps) {
  const { kind, from, to, outcome, step } = segment;
  const [left, right] = [axis.x(from), axis.x(to)];
  const room = right - left;
  const length = duration(to - from);
  const what =
    kind === "run" ? (outcome === "waited" ? "ran" : outcome?.replace("_", " ")) : step && visible(shortened(step, 20));
  const label = what !== undefined && room > 8 * (what.length + length.length + 1) + 24 ? `${what} ${length}` : length;
  const broken = room > BREAK && axis.breaks.some((each) => each.from >= from && each.to <= to);
  return (
    <g
      role="img"
      tabIndex={tabIndex}
      class={`segment ${lookOf(segment)}`}
      aria-label={sentence(lane, segment)}
      {...telling(said, sentence(lane, segment))}
    >
      <rect x={left} y={y + 3} width={Math.max(room, 2)} height={LANE - 8} rx="2" />
      {broken && <path class="break" d={`M${right - 14} ${y + 1}l-3 8 6 6-3 8m6-22-3 8 6 6-3 8`} />}
      {room > LETTER * label.length + 8 + (broken ? BREAK / 2 : 0) && (
        <text x={broken ? left + 6 : left + room / 2} y={y + 17} text-anchor={broken ? "start" : "middle"}>
          {label}
        </text>
      )}
    </g>
  );
}

interface StepProps {
  step: StepBar;
  axis: Axis;
  y: number;
  width: number;
  said: Signal<string | undefined>;
}

/** A step as a bar with its name beside it, where there is room. */
function StepView({ step: { name, kind, waits, from, to }, axis, y, width, said }: StepProps) {
  const [left, right] = [axis.x(from), axis.x(to)];
  const label = visible(shortened(name, 40));
  const words = `${label}: ${STEP_WORDS[kind] ?? kind}, ${waits ? "waited" : "took"} ${duration(to - from)}. ${exact(from, zone.value)}`;
  const fits = right + label.length * LETTER + 8 < width;
  return (
    <g role="img" tabIndex={-1} class={`step ${waits ? "waits" : ""}`} aria-label={words} {...telling(said, words)}>
      <rect x={left} y={y + 4} width={Math.max(right - left, 3)} height={STEP - 8} rx="2" />
      <text
        x={fits ? right + 6 : Math.max(left - 6, label.length * LETTER)}
        y={y + 15}
        text-anchor={fits ? "start" : "end"}
      >
        {label}
      </text>
    </g>
  );
}

function sentence(lane: Lane, { kind, from, to, outcome, step }: Segment): string {
  const where = kind === "run" && lane.attempt?.instance != null ? ` on ${visible(lane.attempt.instance)}` : "";
  const end =
    kind === "run" && outcome !== undefined
      ? `: ${outcome === "waited" ? "then its handler waited" : outcome.replace("_", " ")}`
      : "";
  const inStep = step === undefined ? "" : ` in “${visible(step)}”`;
  const error = kind === "run" && lane.attempt?.error != null ? `, ${visible(lane.attempt.error.type)}` : "";
  return `Attempt ${lane.number} ${WORDS[kind]} ${duration(to - from)}${inStep}${where}${end}${error}. ${exact(from, zone.value)} to ${exact(to, zone.value)}`;
}

/** What the colours and hatches mean that are there. */
function Key({ line }: { line: TimeLine }) {
  return (
    <span class="key faint">
      {[...meaningsOf(line)].map(([words, look]) => (
        <span key={words} class="nowrap">
          <svg width="18" height="12" aria-hidden="true">
            <g class={`segment ${look}`}>
              <rect width="18" height="12" rx="2" />
            </g>
          </svg>{" "}
          {words}{" "}
        </span>
      ))}
    </span>
  );
}

type Part = [lane: Lane, segment: Segment];

const COLUMNS: readonly Column<Part>[] = [
  { title: "Attempt", cell: ([lane]) => lane.number },
  {
    title: "What",
    cell: ([, each]) => `${meaningOf(lookOf(each))}${each.step === undefined ? "" : ` in “${visible(each.step)}”`}`,
  },
  { title: "From", cell: ([, { from }]) => <When at={new Date(from).toISOString()} as="absolute" /> },
  { title: "For", numeric: true, cell: ([, { from, to }]) => <Took ms={to - from} /> },
  { title: "Instance", cell: ([lane, { kind }]) => (kind === "run" ? visible(lane.attempt?.instance ?? "") : "") },
];

function Attempts({ line }: { line: TimeLine }) {
  const rows = line.lanes.flatMap((lane) => lane.segments.map((segment): Part => [lane, segment]));
  return (
    <Table
      caption="Attempts"
      columns={COLUMNS}
      rows={rows}
      keyOf={([lane, { kind, from }]) => `${lane.number} ${kind} ${from}`}
    />
  );
}
