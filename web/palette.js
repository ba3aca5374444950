/** The palette (Ctrl-K) and the page of keys (?). */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { has, inGitops, inProject, me, project, read } from "./api.js";
import { Dialog } from "./parts.js";
import { go, pathTo } from "./route.js";
import { objectName } from "./words.js";

/** @typedef {{ key: string, title: string, note: string, run: () => void }} Command */

/** @type {[string, string][]} */
const KEYS = [
  ["/", "search"],
  ["Ctrl K", "find anything"],
  ["j  k", "next, previous"],
  ["↵", "open"],
  ["u", "back to the list"],
  [".", "show new rows"],
  ["s", "side by side or inline"],
  ["a", "approve exactly the plan that is shown"],
  ["x", "reject, with a comment"],
  ["c", "codify: have Git declare it"],
  ["r", "revert: put it back"],
  ["z", "snooze"],
  ["h", "hold"],
  ["i", "ignore for a while"],
  ["y", "copy the link"],
  ["e", "copy as a command"],
  ["Ctrl ↵", "send a form"],
  ["Esc", "leave a form"],
  ["g i", "go to the inbox"],
  ["g a", "go to applications"],
  ["g w", "go to workloads"],
  ["g o", "go to holds"],
  ["g r", "go to ignore rules"],
  ["g h", "go to history"],
  ["g m", "go to me"],
  ["?", "this page"],
];

/** @param {{ onClose: () => void }} props */
export function Help({ onClose }) {
  return html`<${Dialog} title="Keys" wide onClose=${onClose}>
    <dl class="keys">${KEYS.map(([keys, what]) => html`<div key=${keys}><dt><kbd>${keys}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <p class="faint">A key that decides something works on an open drift whose difference is shown, and nowhere else.</p>
  <//>`;
}

/** @param {{ onClose: () => void, help: () => void, screens: [string, string, string][] }} props */
export function Palette({ onClose, help, screens }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [found, setFound] = useState(/** @type {Command[]} */ ([]));
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    const ended = new AbortController();
    const timer = setTimeout(async () => {
      /** @type {Command[]} */
      const commands = [];
      try {
        if (has("applications") && text.trim()) {
          const list = /** @type {import("./types").DriftList} */ (await read(inGitops("/drifts"), { query: { q: text.trim(), limit: 8, state: "all" }, signal: ended.signal }));
          for (const drift of list.drifts) commands.push({ key: drift.id, title: objectName(drift.object), note: `drift ${drift.id}, ${drift.state}`, run: () => go(pathTo(project.peek(), "drifts", drift.id)) });
        }
        if (has("applications")) {
          const list = /** @type {{ applications: import("./types").Application[] }} */ (await read(inGitops("/applications"), { signal: ended.signal }));
          for (const app of list.applications) commands.push({ key: app.id, title: app.id, note: "application", run: () => go(pathTo(project.peek(), "applications", app.label)) });
        }
        if (has("workloads")) {
          const list = /** @type {{ workloads: import("./types").Workload[] }} */ (await read(inProject("/workloads"), { signal: ended.signal }));
          for (const each of list.workloads) commands.push({ key: each.slug, title: each.slug, note: "workload", run: () => go(pathTo(project.peek(), "workloads", each.slug)) });
        }
      } catch {
        // What cannot be read is not offered; the screens themselves say why.
      }
      if (!ended.signal.aborted) setFound(commands);
    }, 120);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [text]);
  /** @type {Command[]} */
  const fixed = [
    ...screens.map(([href, word]) => ({ key: href, title: word, note: "go to", run: () => go(href) })),
    { key: "me", title: "Me", note: "go to", run: () => go("/ui/me") },
    { key: "help", title: "Keys", note: "help", run: help },
    ...(me.value?.projects ?? []).filter((each) => each.project !== project.value).map((each) => ({ key: `p ${each.project}`, title: each.project, note: "project", run: () => go(pathTo(each.project, "inbox")) })),
  ];
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matching = [...fixed, ...found].filter((each) => each.note.startsWith("drift ") || words.every((word) => `${each.title} ${each.note}`.toLowerCase().includes(word))).slice(0, 12);
  const chosen = Math.min(at, Math.max(0, matching.length - 1));
  /** @param {Command | undefined} command */
  const run = (command) => {
    if (!command) return;
    onClose();
    command.run();
  };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setAt(Math.min(chosen + 1, matching.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(chosen - 1, 0));
    else if (event.key === "Enter") run(matching[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Find anything" onClose=${onClose}>
    <input ref=${input} class="palette" type="text" role="combobox" aria-label="Find" aria-expanded="true" aria-controls="found" aria-activedescendant=${matching.length ? `found-${chosen}` : undefined}
      autocomplete="off" spellcheck="false" autofocus placeholder="a screen, an object, an application …" value=${text} onInput=${(/** @type {any} */ event) => (setText(event.target.value), setAt(0))} onKeyDown=${onKeyDown} />
    <ul id="found" class="found" role="listbox" aria-label="Found">${matching.map(
      (each, index) => html`<li key=${each.key} id=${`found-${index}`} role="option" aria-selected=${index === chosen ? "true" : "false"} onClick=${() => run(each)}><span>${each.title}</span> <span class="faint">${each.note}</span></li>`,
    )}</ul>
    ${matching.length === 0 && html`<p class="faint">Nothing is called so.</p>`}
  <//>`;
}
