// Buttons that copy: a value, or the same question or action in another language.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { act, problemOf, to, type Problem } from "../api";
import { copy } from "../clipboard";
import type { OpsRequest, OpsWay } from "../api.gen";
import { root } from "../router";
import { shown } from "../text";
import { Refused, Skeleton } from "./asking";
import { Dialog } from "./dialog";
import { Icon, Labelled } from "./icon";
import { Opener } from "./opener";

/** A small button that copies a value; `what` is named to those who do not see the mark, and in the toast. */
export function Copy({ text, what, label }: { text: string; what: string; label?: string }) {
  return (
    <button
      type="button"
      class={label === undefined ? "bare" : undefined}
      title={`Copy ${what}`}
      aria-label={`Copy ${what}`}
      onClick={() => void copy(text, what)}
    >
      {label ?? <Icon name="copy" />}
    </button>
  );
}

/** What the page asks the server or would, and what that is called. */
export interface Request extends Partial<OpsRequest> {
  title: string;
  path: string;
}

/** A button that shows what the page shows, or does, as a command, as curl and as a link. */
export function CopyAs({ ways }: { ways: () => readonly Request[] }) {
  return (
    <Opener data-copy-as label={<Labelled name="copy" words="Copy as…" />}>
      {(close) => (
        <Dialog title="Copy as" wide closes close={close}>
          <Ways requests={ways()} />
        </Dialog>
      )}
    </Opener>
  );
}

const LANGUAGES = [
  ["command", "Command"],
  ["curl", "curl"],
  ["link", "Link"],
] as const;

/** The server has the words for each request. What is looked at is in the address of the page. */
function Ways({ requests }: { requests: readonly Request[] }) {
  const found = useSignal<readonly (OpsWay & { link?: string })[] | undefined>(undefined);
  const problem = useSignal<Problem>();
  const ask = () => {
    act(to("POST", "/copy-as"), {
      root: root(),
      requests: requests.map(({ title: _, ...request }) => request),
    }).then(
      ({ ways }) =>
        (found.value = ways.map((way, at) =>
          at === 0 && !requests[0]?.method ? { ...way, link: location.href } : way,
        )),
      (error: unknown) => (problem.value = problemOf(error)),
    );
  };
  useEffect(ask, []);
  if (problem.value) return <Refused problem={problem.value} again={ask} />;
  if (!found.value) return <Skeleton />;
  return (
    <>
      {found.value.map((way, at) => (
        <section key={at} class="ways">
          <h3>{requests[at]?.title}</h3>
          {LANGUAGES.map(([key, label]) => {
            const text = way[key];
            return (
              text && (
                <div key={key} class="way" data-way={key}>
                  <span>{label}</span>
                  <pre tabIndex={0}>{shown(text)}</pre>
                  <Copy
                    text={text}
                    what={`${requests[at]?.title.toLowerCase()} as ${label === "Link" ? "a link" : label}`}
                    label="Copy"
                  />
                </div>
              )
            );
          })}
        </section>
      ))}
    </>
  );
}
