// Queues and numbers over time in other languages, as `copyas` has it for jobs. Pure.
import { curl, python, shell, withImports, type Root, type Way } from "./copyas";

/** All queues, or one: its counts, and what its button does. */
export function queueWays(name: string | undefined, paused: boolean, root: Root): Way[] {
  const option = name === undefined ? "" : ` --name ${shell(name)}`;
  const path = name === undefined ? "queues" : `queue?${new URLSearchParams({ name })}`;
  const show: Way = {
    title: name === undefined ? "These queues" : "This queue", command: `monque stats${option}`,
    python: name === undefined ? "queues = await monque.queue_views()" : `counts = await monque.queue_stats(name=${python(name)})`,
    curl: curl(root, `/${path}`), link: root + path,
  };
  return [show, pauseWay(name ?? null, paused ? "resume" : "pause", root)];
}

function pauseWay(name: string | null, action: "pause" | "resume", root: Root): Way {
  return {
    title: action === "pause" ? "Pause" : "Resume", command: `monque ${action} ${name === null ? "--all" : shell(name)}`,
    python: `await monque.${action}(${python(name)})`, curl: curl(root, `/queue/${action}`, "POST", { name }),
  };
}

const UNITS: Record<string, string> = { m: "minutes", h: "hours", d: "days" };

/** The numbers of a window, such as "6h". */
export function latencyWays(name: string | undefined, window: string, root: Root): Way {
  const query = new URLSearchParams({ ...(name === undefined ? {} : { name }), window });
  const since = `since=datetime.now(UTC) - timedelta(${UNITS[window.slice(-1)]}=${parseInt(window, 10)})`;
  return {
    title: "These numbers", command: `monque trends${name === undefined ? "" : ` --name ${shell(name)}`} --since ${window}`,
    python: withImports(`points = await monque.trends(${name === undefined ? "" : `name=${python(name)}, `}${since})`),
    curl: curl(root, `/latency?${query}`), link: `${root}latency?${query}`,
  };
}
