import { screens } from "./nav";
import { Dialog } from "./parts/dialog";
import { base } from "./router";
import { KEYS, overlay } from "./shortcuts";
import { me, shortcuts } from "./store";
import { visible } from "./text";

/** Which keys there are, and what this is. */
export function Help() {
  // As in the palette: it may be open before this is told that it is closed.
  const close = () => void (overlay.value === "keys" && (overlay.value = undefined));
  const keys = [...KEYS, ...screens().map(({ key, title }) => [`g ${key}`, `go to ${title}`] as const)];
  return (
    <Dialog title="Shortcuts" closes close={close}>
      <dl class="keys">
        {keys.map(([key, words]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{words}</dd>
          </div>
        ))}
      </dl>
      <label class="choice">
        <input
          type="checkbox"
          checked={shortcuts.value === "on"}
          onChange={(event) => (shortcuts.value = event.currentTarget.checked ? "on" : "off")}
        />
        Single-key shortcuts
      </label>
      <p class="faint">
        Monque {visible(me.value?.version ?? "")}.{" "}
        <a href={`${base}LICENSES.md`} target="_blank">
          Licences of these pages
        </a>
      </p>
    </Dialog>
  );
}
