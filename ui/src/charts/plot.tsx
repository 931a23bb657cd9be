// The ground of a chart over time: axes, release marks, a crosshair that mouse and arrow keys move, and a range that they choose.
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { zone } from "../store";
import { shortened, visible } from "../text";
import { axisTime, clock } from "../time";
import "./charts.css";
import { indexAt, linear, timeTicks, type Scale } from "./scale";

export interface Mark {
  at: string;
  release: string;
}

export interface Ground {
  label: string;
  steps: readonly { from: number; to: number }[];
  height: number;
  /** From a value to its place, for a plot of this height. */
  scale: (height: number) => Scale;
  ticks: readonly { value: number; text: string }[];
  /** A second axis, on the right, for what would be too small on the first. */
  right?: { scale: (height: number) => Scale; ticks: readonly { value: number; text: string }[] };
  marks?: readonly Mark[];
  /** The step under the crosshair. */
  cursor: Signal<number | undefined>;
  /** What the step under the crosshair says, for screen readers. */
  say: (index: number) => string;
  onRange?: (from: number, to: number) => void;
  /** For charts in which the height matters, too. */
  onMove?: (place: number, size: number) => void;
  onKey?: (key: string) => boolean;
  onPress?: () => void;
  children: (x: Scale, y: Scale, cursor: number | undefined, other: Scale | undefined) => ComponentChildren;
}

const LEFT = 56;
const RIGHT = 12;
const RIGHT_AXIS = 40;
const TOP = 16;
const BOTTOM = 22;
const ROOM_OF_A_TICK = 80;
const ROOM_OF_A_NAME = 120;
// A hand trembles: fewer pixels are a click.
const SHORTEST_DRAG = 6;

export function Plot(given: Ground) {
  const { label, steps, height, scale, ticks, marks = [], cursor, say, children } = given;
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const anchor = useSignal<number>();
  const from = steps[0]?.from ?? 0;
  const to = steps.at(-1)?.to ?? 1;
  const end = width - (given.right === undefined ? RIGHT : RIGHT_AXIS);
  const x = linear(from, to, LEFT, end);
  const inner = scale(height - TOP - BOTTOM);
  const y: Scale = (value) => TOP + inner(value);
  const below = given.right?.scale(height - TOP - BOTTOM);
  const other: Scale | undefined = below && ((value) => TOP + below(value));
  const chosen = cursor.value === undefined ? undefined : Math.min(cursor.value, steps.length - 1);
  const hands = useHands(given, end, from, to, anchor);
  const where = chosen ?? steps.length - 1;
  return (
    <div
      ref={box}
      class="plot"
      role="slider"
      tabIndex={0}
      aria-label={`${label}. Arrow keys move, with Shift they choose a range, Enter ${given.onPress ? "opens" : "takes"} it.`}
      aria-valuemin={0}
      aria-valuemax={Math.max(0, steps.length - 1)}
      aria-valuenow={Math.max(0, where)}
      aria-valuetext={steps.length === 0 ? "no data" : say(where)}
      {...hands}
    >
      <svg width={width} height={height} aria-hidden="true">
        {ticks.map(({ value, text }) => (
          <g key={value}>
            <path class="grid" d={`M${LEFT} ${y(value)}H${end}`} />
            <text class="tick" x={LEFT - 6} y={y(value) + 4} text-anchor="end">
              {text}
            </text>
          </g>
        ))}
        {other !== undefined &&
          given.right?.ticks.map(({ value, text }) => (
            <text key={value} class="tick tick-bad" x={end + 4} y={other(value) + 4}>
              {text}
            </text>
          ))}
        <TimeAxis from={from} to={to} x={x} y={height - BOTTOM} end={end} />
        {children(x, y, chosen, other)}
        {marks.map((mark, at) => (
          <Release
            key={mark.at}
            at={x(Date.parse(mark.at))}
            next={x(Date.parse(marks[at + 1]?.at ?? ""))}
            name={mark.release}
            bottom={height - BOTTOM}
            width={width}
          />
        ))}
        <Chosen steps={steps} cursor={chosen} anchor={anchor.value} x={x} bottom={height - BOTTOM} />
      </svg>
    </div>
  );
}

function TimeAxis({ from, to, x, y, end }: { from: number; to: number; x: Scale; y: number; end: number }) {
  const offset = (at: number) => (zone.value === "utc" ? 0 : -new Date(at).getTimezoneOffset() * 60_000);
  const { step, at } = timeTicks(from, to, Math.max(2, (end - LEFT) / ROOM_OF_A_TICK), offset);
  return (
    <g>
      <path class="axis" d={`M${LEFT} ${y + 0.5}H${end}`} />
      {at.map((each) => (
        <g key={each}>
          <path class="axis" d={`M${x(each)} ${y}v4`} />
          <text class="tick" x={Math.min(x(each), end - 8)} y={y + 17} text-anchor="middle">
            {axisTime(each, step, zone.value)}
          </text>
        </g>
      ))}
    </g>
  );
}

/** A dashed line; its name is left out where the next one would stand on it. */
function Release({
  at,
  next,
  name,
  bottom,
  width,
}: {
  at: number;
  next: number;
  name: string;
  bottom: number;
  width: number;
}) {
  const isRight = at > width - ROOM_OF_A_NAME;
  return (
    <g class="release">
      <path d={`M${at} ${TOP - 4}V${bottom}`} />
      {!(next - at < ROOM_OF_A_NAME) && (
        <text x={isRight ? at - 4 : at + 4} y={TOP - 5} text-anchor={isRight ? "end" : "start"}>
          {visible(shortened(name, 16))}
        </text>
      )}
    </g>
  );
}

interface Choice {
  steps: readonly { from: number; to: number }[];
  cursor: number | undefined;
  anchor: number | undefined;
  x: Scale;
  bottom: number;
}

function Chosen({ steps, cursor, anchor, x, bottom }: Choice) {
  const step = cursor === undefined ? undefined : steps[cursor];
  if (step === undefined || cursor === undefined) return null;
  const other = steps[anchor ?? cursor] ?? step;
  const [begin, end] = [x(Math.min(step.from, other.from)), x(Math.max(step.to, other.to))];
  const middle = (x(step.from) + x(step.to)) / 2;
  return (
    <>
      {anchor !== undefined && <rect class="range" x={begin} y={TOP} width={end - begin} height={bottom - TOP} />}
      <path class="crosshair" d={`M${middle} ${TOP}V${bottom}`} />
    </>
  );
}

/** What mouse, finger and keys do. */
function useHands(
  { steps, height, cursor, onRange, onMove, onKey, onPress }: Ground,
  end: number,
  from: number,
  to: number,
  anchor: Signal<number | undefined>,
) {
  const pressed = useRef<number | undefined>(undefined);
  const stepAt = (event: PointerEvent) => {
    const left = event.clientX - (event.currentTarget as HTMLElement).getBoundingClientRect().left;
    return indexAt(steps, linear(LEFT, end, from, to)(left));
  };
  const choose = () => {
    const [begin, end] = [anchor.value, cursor.value].sort((a, b) => (a ?? 0) - (b ?? 0));
    const [first, last] = [steps[begin ?? -1], steps[end ?? -1]];
    anchor.value = undefined;
    if (first !== undefined && last !== undefined) onRange?.(first.from, last.to);
  };
  return {
    onPointerMove: (event: PointerEvent) => {
      const index = stepAt(event);
      if (
        onRange !== undefined &&
        pressed.current !== undefined &&
        Math.abs(event.clientX - pressed.current) >= SHORTEST_DRAG
      ) {
        anchor.value ??= cursor.value ?? index;
      }
      cursor.value = index;
      onMove?.(
        event.clientY - (event.currentTarget as HTMLElement).getBoundingClientRect().top - TOP,
        height - TOP - BOTTOM,
      );
    },
    onPointerDown: (event: PointerEvent) => {
      if (event.button !== 0) return;
      (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
      pressed.current = event.clientX;
      cursor.value = stepAt(event);
    },
    onPointerUp: () => {
      if (pressed.current === undefined) return;
      pressed.current = undefined;
      if (anchor.value !== undefined) choose();
      else onPress?.();
    },
    onPointerCancel: () => {
      pressed.current = anchor.value = undefined;
    },
    onPointerLeave: () => {
      if (pressed.current === undefined) cursor.value = undefined;
    },
    onBlur: () => {
      anchor.value = cursor.value = undefined;
    },
    onKeyDown: (event: KeyboardEvent) => {
      const last = steps.length - 1;
      const here = cursor.value ?? last;
      const moves: Record<string, number> = {
        ArrowLeft: here - 1,
        ArrowRight: here + 1,
        Home: 0,
        End: last,
        PageDown: here - 10,
        PageUp: here + 10,
      };
      const next = moves[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (next !== undefined) {
        anchor.value = event.shiftKey && onRange !== undefined ? (anchor.value ?? here) : undefined;
        cursor.value = Math.max(0, Math.min(last, next));
      } else if (event.key === "Enter" && anchor.value !== undefined) choose();
      else if (event.key === "Enter" && onPress !== undefined) onPress();
      else if (event.key === "Escape" && cursor.value !== undefined) anchor.value = cursor.value = undefined;
      else if (onKey?.(event.key) !== true) return;
      event.preventDefault();
    },
  };
}

/** How wide an element is, and becomes. */
export function useWidth(box: { current: Element | null }): number {
  const width = useSignal(600);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => {
      width.value = Math.max(200, Math.floor(entry?.contentRect.width ?? 600));
    });
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return width.value;
}

/** "14:02 – 14:03", with the day where it matters. */
export function timesOf(step: { from: number; to: number }, withDay: boolean): string {
  const text = `${clock(step.from, zone.value, withDay)} – ${clock(step.to, zone.value, withDay && step.to - step.from > 86_400_000)}`;
  return zone.value === "utc" ? `${text} UTC` : text;
}
