/** Live and declared, side by side or inline: the one way in which the page shows a difference. */

import { html, signal } from "./vendor/preact.js";
import { causeWords, moment, plural } from "./words.js";

/** @typedef {import("./types").Entry} Entry */
/** @typedef {{ kind: "same" | "live" | "git" | "both" | "skip", live?: string, git?: string, count?: number }} Row */

const CONTEXT = 3;
const MAX_CELLS = 4_000_000;

export const split = signal(localStorage.getItem("holdfast-diff") !== "inline");

export function toggleSplit() {
  split.value = !split.value;
  localStorage.setItem("holdfast-diff", split.value ? "split" : "inline");
}

/** @param {unknown} value as text, as people read it */
export function valueText(value) {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** @param {string[]} live @param {string[]} git @returns {("=" | "-" | "+")[]} an edit script from live to git */
function script(live, git) {
  if (live.length * git.length > MAX_CELLS) {
    return [...live.map(() => /** @type {const} */ ("-")), ...git.map(() => /** @type {const} */ ("+"))];
  }
  const width = git.length + 1;
  const lengths = new Uint16Array((live.length + 1) * width);
  const at = (/** @type {number} */ i, /** @type {number} */ j) => lengths[i * width + j] ?? 0;
  for (let i = live.length - 1; i >= 0; i--) {
    for (let j = git.length - 1; j >= 0; j--) {
      lengths[i * width + j] = live[i] === git[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  /** @type {("=" | "-" | "+")[]} */
  const steps = [];
  let i = 0;
  let j = 0;
  while (i < live.length || j < git.length) {
    if (i < live.length && j < git.length && live[i] === git[j]) steps.push("="), i++, j++;
    else if (i < live.length && (j >= git.length || at(i + 1, j) >= at(i, j + 1))) steps.push("-"), i++;
    else steps.push("+"), j++;
  }
  return steps;
}

/** @param {string} liveText @param {string} gitText @returns {Row[]} lines that differ, with some around them */
export function lineRows(liveText, gitText) {
  const [live, git] = [liveText.split("\n"), gitText.split("\n")];
  if (live.at(-1) === "" && git.at(-1) === "") live.pop(), git.pop(); // what ends with a line end
  let start = 0;
  while (start < live.length && start < git.length && live[start] === git[start]) start++;
  let end = 0;
  while (end < live.length - start && end < git.length - start && live.at(-1 - end) === git.at(-1 - end)) end++;
  /** @type {Row[]} */
  const rows = live.slice(0, start).map((line) => ({ kind: "same", live: line, git: line }));
  let i = start;
  let j = start;
  for (const step of script(live.slice(start, live.length - end), git.slice(start, git.length - end))) {
    if (step === "=") rows.push({ kind: "same", live: live[i++], git: git[j++] });
    else if (step === "-") rows.push({ kind: "live", live: live[i++] });
    else {
      // A line that took another's place stands beside it.
      const beside = rows.find((row, index) => row.kind === "live" && rows.slice(index).every((each) => each.kind === "live" || each.kind === "both"));
      if (beside) (beside.kind = "both"), (beside.git = git[j++]);
      else rows.push({ kind: "git", git: git[j++] });
    }
  }
  for (; i < live.length; i++) rows.push({ kind: "same", live: live[i], git: live[i] });
  return fold(rows);
}

/** @param {Row[]} rows @returns {Row[]} without the long stretches where nothing differs */
function fold(rows) {
  const near = new Set();
  rows.forEach((row, index) => {
    if (row.kind === "same") return;
    for (let each = index - CONTEXT; each <= index + CONTEXT; each++) near.add(each);
  });
  /** @type {Row[]} */
  const folded = [];
  rows.forEach((row, index) => {
    const last = folded.at(-1);
    if (near.has(index)) folded.push(row);
    else if (last?.kind === "skip") last.count = (last.count ?? 0) + 1;
    else folded.push({ kind: "skip", count: 1 });
  });
  return folded;
}

/** The part that differs from the other side, marked. @param {string} text @param {string | undefined} other */
function marked(text, other) {
  if (other === undefined || !text || !other || text === other) return text || " ";
  let start = 0;
  while (start < text.length && start < other.length && text[start] === other[start]) start++;
  let end = 0;
  while (end < text.length - start && end < other.length - start && text.at(-1 - end) === other.at(-1 - end)) end++;
  const middle = text.slice(start, text.length - end);
  if (!middle || middle.length === text.length) return text;
  return html`${text.slice(0, start)}<mark>${middle}</mark>${text.slice(text.length - end)}`;
}

/** @param {{ row: Row }} props lines that are left out */
function Fold({ row }) {
  return html`<tr class="fold"><td colspan="2">… ${plural(row.count ?? 0, "line is", "lines are")} the same</td></tr>`;
}

/** @param {{ row: Row }} props */
function SplitRow({ row }) {
  if (row.kind === "skip") return html`<${Fold} row=${row} />`;
  const differs = row.kind !== "same";
  return html`<tr>
    <td class=${differs && row.live !== undefined ? "live" : ""}><code>${row.live === undefined ? "" : marked(row.live, differs ? row.git : undefined)}</code></td>
    <td class=${differs && row.git !== undefined ? "git" : ""}><code>${row.git === undefined ? "" : marked(row.git, differs ? row.live : undefined)}</code></td>
  </tr>`;
}

/** @param {{ row: Row, right: string }} props */
function InlineRow({ row, right }) {
  if (row.kind === "skip") return html`<${Fold} row=${row} />`;
  if (row.kind === "same") return html`<tr><th scope="row"></th><td><code>${row.live}</code></td></tr>`;
  const live = row.live !== undefined && html`<tr><th scope="row">live</th><td class="live"><code>${marked(row.live, row.git)}</code></td></tr>`;
  const git = row.git !== undefined && html`<tr><th scope="row">${right}</th><td class="git"><code>${marked(row.git, row.live)}</code></td></tr>`;
  return html`${live}${git}`;
}

/** @param {{ value: unknown, word?: string }} props one side of a field that has no other */
function NotSet({ value, word = "not set" }) {
  return value === null || value === undefined ? html`<i>${word}</i>` : html`<code>${valueText(value)}</code>`;
}

/**
 * One field: who wrote it, and both sides of it.
 * @param {{ entry: Entry, right?: string, note?: string, sides?: [string, string] }} props `sides` say what has no value
 */
export function FieldDiff({ entry, right = "Git", note = "", sides = ["not set", "not set"] }) {
  const whole = !entry.path && !entry.writer && !entry.cause; // that an object comes or goes has no writer
  const one = [entry.live, entry.desired].some((side) => side === null || side === undefined);
  const rows = one ? [] : lineRows(valueText(entry.live), valueText(entry.desired));
  const by = entry.writer?.actor ?? entry.writer?.manager;
  const via = entry.writer?.actor && entry.writer.manager !== entry.writer.actor ? ` with ${entry.writer.manager}` : "";
  const table = split.value
    ? html`<table class="diff split">
        <thead><tr><th scope="col">Live</th><th scope="col">${right}</th></tr></thead>
        <tbody>${
          one
            ? html`<tr><td class="live"><${NotSet} value=${entry.live} word=${sides[0]} /></td><td class="git"><${NotSet} value=${entry.desired} word=${sides[1]} /></td></tr>`
            : rows.map((row, index) => html`<${SplitRow} key=${index} row=${row} />`)
        }</tbody>
      </table>`
    : html`<table class="diff inline">
        <tbody>${
          one
            ? html`<tr><th scope="row">live</th><td class="live"><${NotSet} value=${entry.live} word=${sides[0]} /></td></tr>
                <tr><th scope="row">${right}</th><td class="git"><${NotSet} value=${entry.desired} word=${sides[1]} /></td></tr>`
            : rows.map((row, index) => html`<${InlineRow} key=${index} row=${row} right=${right} />`)
        }</tbody>
      </table>`;
  return html`<section class="field">
    <h3><code>${entry.path || "the whole object"}</code> <span class="chip">${entry.kind}</span></h3>
    ${!whole && html`<p class="by">
      ${by ? html`by <b>${by}</b>${via}` : "by whom is unknown"}${by || (entry.cause ?? "unknown") !== "unknown" ? ` · ${causeWords(entry.cause)}` : ""}
      ${entry.writer?.at ? html` · ${moment(entry.writer.at)}` : ""}
      ${entry.writer?.subresource ? html` · through /${entry.writer.subresource}` : ""}
    </p>`}
    ${table}
    ${entry.evidence && !whole && html`<p class="evidence">${entry.evidence}</p>`}
    ${note && html`<p class="evidence">${note}</p>`}
  </section>`;
}

/** Says which side is which, and chooses how they stand. @param {{ right?: string }} props */
export function DiffBar({ right = "Git" }) {
  return html`<div class="bar">
    <p class="legend"><span class="swatch live"></span> live: what is there now <span class="swatch git"></span> ${right === "Git" ? "Git: what is declared" : "declared"}</p>
    <button type="button" class="small" onClick=${toggleSplit}>${split.value ? "Show inline" : "Show side by side"} <kbd>s</kbd></button>
  </div>`;
}

/** A patch as text, each line by what it does. @param {{ patch: string }} props */
export function Patch({ patch }) {
  const lines = patch.replace(/\n$/, "").split("\n");
  const tone = (/** @type {string} */ line) =>
    line.startsWith("+++") || line.startsWith("---") || line.startsWith("@@") ? "meta" : line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
  return html`<pre class="patch" tabindex="0" aria-label="Patch">${lines.map((line) => html`<span class=${tone(line)}>${line + "\n"}</span>`)}</pre>`;
}
