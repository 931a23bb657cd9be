// The menu of saved views: open one, save what the address says, rename or delete the one that is open.
import { useSignal } from "@preact/signals";
import { Confirm } from "../../parts/confirm";
import { bound } from "../../parts/fields";
import { Labelled } from "../../parts/icon";
import { Menu } from "../../parts/menu";
import { visitHref } from "../../recent";
import { go } from "../../router";
import { say } from "../../store";
import { visible } from "../../text";
import { deleteView, queryHere, saveView, views } from "../../views";

export function Views() {
  const naming = useSignal(false);
  const query = queryHere();
  const here = views.value.find((each) => each.query === query);
  const name = () => (naming.value = true);
  const remove = (title: string) => {
    deleteView(title);
    say({ tone: "good", text: `Deleted the view ${visible(title)}.` });
  };
  const saved = views.value.map((each) => ({
    label: visible(each.title),
    checked: each === here,
    run: () => go(visitHref(each)),
  }));
  const deeds =
    here === undefined
      ? [{ label: "Save this view…", run: name }]
      : [
          { label: "Rename this view…", run: name },
          { label: "Delete this view", tone: "danger" as const, run: () => remove(here.title) },
        ];
  return (
    <>
      <Menu
        label="Views"
        class=""
        groups={saved.length === 0 ? [{ items: deeds }] : [{ title: "Saved views", items: saved }, { items: deeds }]}
      >
        <Labelled name="filter" words="Views" />
      </Menu>
      {naming.value && <Naming query={query} before={here?.title} close={() => (naming.value = false)} />}
    </>
  );
}

function Naming({ query, before, close }: { query: string; before: string | undefined; close: () => void }) {
  const text = useSignal(before ?? "");
  const title = text.value.trim();
  const replaces = title !== before && views.value.some((each) => each.title === title);
  return (
    <Confirm
      title={before === undefined ? "Save this view" : `Rename ${visible(before)}`}
      verb={before === undefined ? "Save" : "Rename"}
      note={false}
      ready={title !== ""}
      close={close}
      run={async () => saveView(title, query, before)}
    >
      <label class="field">
        Name
        <input {...bound(text)} required maxLength={60} spellcheck={false} />
      </label>
      <p class="faint" role="status">
        {replaces ? "It replaces the view that has this name." : "Filters and order are kept in this browser."}
      </p>
    </Confirm>
  );
}
