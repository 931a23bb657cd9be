// The time line as a picture: one lane an attempt. Hover and focus show the numbers; arrow keys move.
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import type { OpsJobAnswer } from "../../api.gen";
import { useWidth } from "../../charts/plot";
import { Table, type Column } from "../../parts/table";
import { When, Took } from "../../parts/when";
import { now, zone } from "../../store";
import { visible } from "../../text";
import { absolute, duration, exact } from "../../time";
import { savePng, saveSvg } from "./savepicture";
import { axisOf, timeLine, type Axis, type Kind, type Lane, type Segment, type TimeLine } from "./timeline";

const LANE = 28;
const TOP = 22;
const LEFT = 34;

const WORDS: Record<Kind, string> = {
  planned: "was not due yet for", wait: "waited, due, for", run: "ran for", backoff: "backed off for",
  rest: "rested for", silent: "had a silent owner for",
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
      <p class="readout faint" aria-hidden="true">{said.value ?? `From ${exact(line.from, zone.value)}, ${duration(line.to - line.from)} in all.`}</p>
      <div class="bar">
        <Key />
        <span class="grow" />
        <button type="button" onClick={() => picture.current !== null && saveSvg(picture.current, `job-${job.id}`)}>Save as SVG</button>
        <button type="button" onClick={() => picture.current !== null && savePng(picture.current, `job-${job.id}`)}>Save as PNG</button>
      </div>
      <details>
        <summary>The same as a table</summary>
        <Attempts line={line} />
      </details>
    </section>
  );
}

interface PictureGiven {
  line: TimeLine;
  width: number;
  picture: { current: SVGSVGElement | null };
  said: Signal<string | undefined>;
  job: OpsJobAnswer;
}

function Picture({ line, width, picture, said, job }: PictureGiven) {
  const axis = axisOf(line, width - LEFT - 8);
  const height = TOP + line.lanes.length * LANE + 6;
  const move = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : event.key === "ArrowLeft" || event.key === "ArrowUp" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const parts = [...(picture.current?.querySelectorAll<SVGElement>("[role=img]") ?? [])];
    parts[Math.max(0, Math.min(parts.length - 1, parts.indexOf(document.activeElement as SVGElement) + step))]?.focus();
  };
  return (
    <svg ref={picture} class="time-line" width="100%" height={height} role="group" aria-label="Time line. Arrow keys move along it." onKeyDown={move} onPointerLeave={() => (said.value = undefined)}>
      <rect class="ground" width="100%" height="100%" />
      <defs>
        <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect class="hatch-ground" width="6" height="6" /><line class="hatch" x1="0" y1="0" x2="0" y2="6" />
        </pattern>
      </defs>
      <g transform={`translate(${LEFT} 0)`}>
        <text class="axis-text" x="0" y="12">{absolute(line.from, zone.value, now.value)}</text>
        {axis.ticks.map((tick) => (
          <g key={tick.x}>
            <line class="axis" x1={tick.x} x2={tick.x} y1={TOP - 6} y2={height - 6} />
            <text class="axis-text" x={tick.x} y="12" text-anchor="middle">{tick.text}</text>
          </g>
        ))}
        {line.lanes.map((lane, index) => <LaneView key={lane.number} lane={lane} axis={axis} y={TOP + index * LANE} first={index === 0} said={said} />)}
        {line.marks.filter((mark) => mark.at >= line.from && mark.at <= line.to).map((mark, index) => (
          <g key={index} role="img" tabIndex={-1} aria-label={visible(mark.words)} class="action-mark" transform={`translate(${axis.x(mark.at)} ${TOP - 4})`} {...telling(said, `${visible(mark.words)}, ${exact(mark.at, zone.value)}`)}>
            <line y1="0" y2={height - TOP} /><path d="M-5 -5h10l-5 8z" />
          </g>
        ))}
        {(job.status === "pending" || job.status === "processing") && <line class="now-line" x1={axis.x(Math.min(now.value, line.to))} x2={axis.x(Math.min(now.value, line.to))} y1={TOP - 6} y2={height - 4} />}
      </g>
    </svg>
  );
}

function telling(said: Signal<string | undefined>, words: string) {
  const tell = () => (said.value = words);
  return { onPointerEnter: tell, onFocus: tell };
}

function LaneView({ lane, axis, y, first, said }: { lane: Lane; axis: Axis; y: number; first: boolean; said: Signal<string | undefined> }) {
  return (
    <g>
      <text class="axis-text" x="-8" y={y + 17} text-anchor="end">{lane.number}</text>
      {lane.segments.map((segment, index) => <SegmentView key={index} lane={lane} segment={segment} axis={axis} y={y} tabIndex={first && index === 0 ? 0 : -1} said={said} />)}
    </g>
  );
}

interface SegmentGiven {
  lane: Lane;
  segment: Segment;
  axis: Axis;
  y: number;
  tabIndex: number;
  said: Signal<string | undefined>;
}

function SegmentView({ lane, segment, axis, y, tabIndex, said }: SegmentGiven) {
  const { kind, from, to, outcome } = segment;
  const [left, right] = [axis.x(from), axis.x(to)];
  const room = right - left;
  const length = duration(to - from);
  const label = kind === "run" && outcome !== undefined && room > 110 ? `${outcome.replace("_", " ")} ${length}` : length;
  const broken = room > 60 && axis.breaks.some((each) => each.from >= from && each.to <= to);
  return (
    <g role="img" tabIndex={tabIndex} class={`segment ${kind} ${kind === "run" ? `ended-${outcome}` : ""}`} aria-label={sentence(lane, segment)} {...telling(said, sentence(lane, segment))}>
      <rect x={left} y={y + 3} width={Math.max(room, 2)} height={LANE - 8} rx="2" />
      {broken && <path class="break" d={`M${left + room / 2 - 3} ${y + 1}l-3 8 6 6-3 8m6-22-3 8 6 6-3 8`} />}
      {room > 8 * label.length + 8 && <text x={broken ? left + 6 : left + room / 2} y={y + 17} text-anchor={broken ? "start" : "middle"}>{label}</text>}
    </g>
  );
}

function sentence(lane: Lane, { kind, from, to, outcome }: Segment): string {
  const where = kind === "run" && lane.attempt?.instance != null ? ` on ${visible(lane.attempt.instance)}` : "";
  const end = kind === "run" && outcome !== undefined ? `: ${outcome.replace("_", " ")}` : "";
  const error = kind === "run" && lane.attempt?.error != null ? `, ${visible(lane.attempt.error.type)}` : "";
  return `Attempt ${lane.number} ${WORDS[kind]} ${duration(to - from)}${where}${end}${error}. ${exact(from, zone.value)} to ${exact(to, zone.value)}`;
}

const KEYS: readonly [Kind, string, string][] = [["wait", "", "waits"], ["run", "", "runs"], ["run", "ended-completed", "completed"], ["run", "ended-retried", "retried"], ["run", "ended-failed", "failed"], ["backoff", "", "pauses"], ["silent", "", "owner silent"]];

function Key() {
  return (
    <span class="key faint">
      {KEYS.map(([kind, ended, words]) => (
        <span key={words} class="nowrap"><svg width="18" height="12" aria-hidden="true"><g class={`segment ${kind} ${ended}`}><rect width="18" height="12" rx="2" /></g></svg> {words} </span>
      ))}
    </span>
  );
}

type Part = [lane: Lane, segment: Segment];

const COLUMNS: readonly Column<Part>[] = [
  { title: "Attempt", cell: ([lane]) => lane.number },
  { title: "What", cell: ([, { kind, outcome }]) => (kind === "run" ? (outcome ?? "run").replace("_", " ") : kind) },
  { title: "From", cell: ([, { from }]) => <When at={new Date(from).toISOString()} as="absolute" /> },
  { title: "For", numeric: true, cell: ([, { from, to }]) => <Took ms={to - from} /> },
  { title: "Instance", cell: ([lane, { kind }]) => (kind === "run" ? visible(lane.attempt?.instance ?? "") : "") },
];

function Attempts({ line }: { line: TimeLine }) {
  const rows = line.lanes.flatMap((lane) => lane.segments.map((segment): Part => [lane, segment]));
  return <Table caption="Attempts" columns={COLUMNS} rows={rows} keyOf={([lane, { kind }]) => `${lane.number} ${kind}`} />;
}
