/** Small parts that every screen is made of. */

import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { failureOf, isAborted } from "./api.js";
import { useKeys } from "./keys.js";
import { now } from "./live.js";
import { age, moment, stateWords } from "./words.js";

/** @typedef {import("./vendor/preact.js").Child} Child */
/** @typedef {import("./vendor/preact.js").VNode} VNode */
/** @typedef {import("./api.js").Failure} Failure */

/** @param {string} text said by a screen reader, once */
export function announce(text) {
  const place = document.getElementById("announcements");
  if (!place) return;
  place.textContent = "";
  setTimeout(() => (place.textContent = text), 30);
}

const shown = signal(/** @type {{ id: number, text: string, tone: string }[]} */ ([]));
let lastNotice = 0;

/** Say something for a while. @param {string} text @param {"good" | "bad" | "quiet"} [tone] */
export function notify(text, tone = "good") {
  const id = ++lastNotice;
  shown.value = [...shown.value.slice(-2), { id, text, tone }];
  announce(text);
  setTimeout(() => (shown.value = shown.value.filter((each) => each.id !== id)), tone === "bad" ? 12_000 : 5_000);
}

export function Notices() {
  return html`<div class="notices">${shown.value.map((each) => html`<p key=${each.id} class=${each.tone}>${each.text}</p>`)}</div>`;
}

/** @param {{ state: string, word?: string }} props shape, word and colour */
export function State({ state, word }) {
  const [shape, known, tone] = stateWords(state);
  return html`<span class=${"state " + tone}><span aria-hidden="true">${shape}</span> ${word ?? known}</span>`;
}

/** @param {{ at: string | undefined, suffix?: string }} props how long ago; the time itself on hover */
export function Age({ at, suffix = "" }) {
  return at ? html`<time datetime=${at} title=${moment(at)}>${age(at, now.value)}${suffix}</time>` : html`<span>unknown</span>`;
}

/** @param {{ at: string | undefined }} props how long from now */
export function Until({ at }) {
  if (!at) return html`<span>no end</span>`;
  const left = Date.parse(at) - now.value;
  return html`<time datetime=${at} title=${moment(at)}>${left > 0 ? "in " + age(new Date(now.value).toISOString(), Date.parse(at)) : "ended"}</time>`;
}

/** @param {{ kinds: string[], most?: number }} props `most` are shown, and how many there are beside them */
export function Kinds({ kinds, most = kinds.length }) {
  return html`${kinds.slice(0, most).map((kind) => html`<span key=${kind} class=${"chip " + kind}>${kind}</span>`)}${kinds.length > most && html`<span class="faint" title=${kinds.join(", ")}>+${kinds.length - most}</span>`}`;
}

/** True when no answer came; an error of the page's own has no status either. @param {Failure} failure */
function unanswered({ status, code }) {
  return status === 0 && (code === "unavailable" || code === "deadline");
}

/** @param {{ failure: Failure, retry?: () => void }} props */
export function Problem({ failure, retry }) {
  return html`<div class="problem" role="alert">
    <p><b>${failure.status === 404 ? "There is nothing here." : unanswered(failure) ? "The server does not answer." : "That did not work."}</b> ${failure.message}</p>
    ${failure.hint && !failure.message.includes(failure.hint) && html`<p>${failure.hint}</p>`}
    ${failure.requestId && html`<p class="faint">Request ${failure.requestId}</p>`}
    ${retry && html`<p><button type="button" onClick=${retry}>Try again</button></p>`}
  </div>`;
}

/** @param {{ children: Child }} props */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/**
 * Read something when a screen is shown, and again on demand. What was read stays while it is read
 * anew, so that nothing flickers.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {readonly unknown[]} inputs
 * @returns {{ value: T | undefined, failure: Failure | null, reload: () => void, set: (value: T) => void }}
 */
export function useRead(load, inputs) {
  const [value, setValue] = useState(/** @type {T | undefined} */ (undefined));
  const [failure, setFailure] = useState(/** @type {Failure | null} */ (null));
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify(inputs);
  const last = useRef(key);
  const current = last.current === key ? value : undefined;
  useEffect(() => {
    const ended = new AbortController();
    load(ended.signal).then(
      (found) => {
        if (ended.signal.aborted) return;
        last.current = key;
        setValue(() => found);
        setFailure(null);
      },
      (error) => {
        if (!ended.signal.aborted && !isAborted(error)) setFailure(failureOf(error));
      },
    );
    return () => ended.abort();
  }, [key, turn]);
  return { value: current, failure, reload: () => setTurn((before) => before + 1), set: (next) => setValue(() => next) };
}

/**
 * A window over the page. The browser keeps the focus in it.
 * @param {{ title: string, onClose: () => void, wide?: boolean, children: Child }} props
 */
export function Dialog({ title, onClose, wide = false, children }) {
  const place = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useKeys({}, { modal: true });
  useLayoutEffect(() => {
    const before = document.activeElement;
    place.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, []);
  return html`<dialog ref=${place} class=${wide ? "wide" : ""} aria-labelledby="dialog-title"
    onCancel=${(/** @type {Event} */ event) => (event.preventDefault(), onClose())}
    onClick=${(/** @type {MouseEvent} */ event) => event.target === place.current && onClose()}>
    <div class="dialog">
      <header><h2 id="dialog-title">${title}</h2><button type="button" class="plain" aria-label="Close" onClick=${onClose}>✕</button></header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * A window with a form that writes something once: Ctrl-Enter sends it, Escape leaves it.
 * @param {{ title: string, action: string, wide?: boolean, disabled?: boolean, send: (form: FormData) => Promise<void>, onClose: () => void, children: Child }} props
 */
export function FormDialog({ title, action, wide, disabled = false, send, onClose, children }) {
  const [failure, setFailure] = useState(/** @type {Failure | null} */ (null));
  const [busy, setBusy] = useState(false);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  useKeys({ "Ctrl-Enter": () => form.current?.requestSubmit() });
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    if (busy || disabled || !form.current) return;
    setBusy(true);
    try {
      await send(new FormData(form.current));
      onClose();
    } catch (error) {
      setFailure(failureOf(error));
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} wide=${wide} onClose=${onClose}>
    <form ref=${form} onSubmit=${submit}>
      ${children}
      ${failure && html`<${Problem} failure=${failure} />`}
      <footer>
        <button type="button" onClick=${onClose}>Cancel</button>
        ${!disabled && html`<button type="submit" class="primary" disabled=${busy}>${busy ? "Sending …" : action} <kbd>Ctrl ↵</kbd></button>`}
      </footer>
    </form>
  <//>`;
}

/** @param {string} text @param {string} what said once it is in the clipboard */
export async function copyText(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    notify(`Copied ${what}.`, "quiet");
  } catch {
    notify(`The browser does not let this page copy. Here it is: ${text}`, "quiet");
  }
}

const WIDE_ROW = 38;
const NARROW_ROW = 78;
const HEADING = 38;
const narrow = matchMedia("(max-width: 899px)");

/**
 * @template Row
 * @typedef {object} GridProps
 * @property {string} label
 * @property {string} name of the class that has the columns' widths
 * @property {[string, string][]} columns name and title
 * @property {Row[]} rows
 * @property {number} [total] how many there are, where more than are loaded
 * @property {(row: Row) => string} rowKey
 * @property {(row: Row, column: string) => unknown} cell
 * @property {(row: Row) => string} [heading] the text of a row that is a heading; empty for others
 * @property {(row: Row) => string} [href] where a row leads
 * @property {(row: Row) => string} [tone] a class for a row
 * @property {string} [active] the key of the row to begin at
 * @property {(key: string) => void} [onActive]
 * @property {() => void} [onEnd] called as the end of what is loaded comes near
 * @property {boolean} [keys] whether j and k move in it; true when left out
 */

/**
 * Rows as a grid, of which only those in sight are in the document.
 * @template Row
 * @param {GridProps<Row>} props
 */
export function Grid(props) {
  const { rows, columns, rowKey, cell, href } = props;
  const heading = props.heading ?? (() => "");
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [height, setHeight] = useState(narrow.matches ? NARROW_ROW : WIDE_ROW);
  const [range, setRange] = useState([0, 40]);
  const [active, setActive] = useState(props.active ?? "");
  const wanted = useRef("");
  const tops = useMemo(() => {
    const ends = [0];
    for (const row of rows) ends.push((ends.at(-1) ?? 0) + (heading(row) ? HEADING : height));
    return ends;
  }, [rows, height]);
  const topOf = (/** @type {number} */ row) => tops[Math.min(row, rows.length)] ?? 0;
  const found = rows.findIndex((row) => rowKey(row) === active);
  const first = rows.findIndex((row) => !heading(row));
  const index = found < 0 ? first : found;

  const measure = () => {
    const top = place.current?.getBoundingClientRect().top ?? 0;
    let from = Math.max(0, Math.floor(-top / height) - 12);
    while (from > 0 && topOf(from) > -top) from--;
    let to = from;
    while (to < rows.length && topOf(to) < innerHeight - top + 12 * height) to++;
    from = Math.max(0, from - 3);
    setRange((before) => (before[0] === from && before[1] === to ? before : [from, to]));
    if (to >= rows.length) props.onEnd?.();
  };
  useEffect(() => {
    const resized = () => {
      setHeight(narrow.matches ? NARROW_ROW : WIDE_ROW);
      measure();
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", resized);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", resized);
    };
  }, [rows.length, height]);
  useLayoutEffect(() => {
    if (!wanted.current) return;
    const row = place.current?.querySelector(`[data-key="${CSS.escape(wanted.current)}"]`);
    if (row instanceof HTMLElement) {
      wanted.current = "";
      row.focus({ preventScroll: true });
    }
  });

  /** @param {number} to */
  const moveTo = (to) => {
    const step = to >= index ? 1 : -1;
    let next = Math.min(Math.max(to, 0), rows.length - 1);
    while (rows[next] !== undefined && heading(/** @type {Row} */ (rows[next]))) next += step;
    const row = rows[next];
    if (row === undefined) return;
    const key = rowKey(row);
    wanted.current = key;
    setActive(key);
    props.onActive?.(key);
    const top = (place.current?.getBoundingClientRect().top ?? 0) + topOf(next);
    const bar = 96;
    if (top < bar) scrollBy(0, top - bar - height);
    else if (top + height > innerHeight) scrollBy(0, top + 2 * height - innerHeight);
    measure();
  };
  const open = () => {
    const row = rows[index];
    if (row === undefined || !href) return;
    props.onActive?.(rowKey(row));
    place.current?.querySelector(`[data-key="${CSS.escape(rowKey(row))}"] a`)?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
  };
  const focused = () => place.current?.contains(document.activeElement) ?? false;
  const start = (/** @type {number} */ step) => (focused() || active ? index + step : index);
  const moves = {
    j: () => moveTo(start(1)),
    k: () => moveTo(start(-1)),
    Enter: open,
  };
  useKeys(props.keys === false ? {} : moves);
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const page = Math.max(1, Math.floor(innerHeight / height) - 3);
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: rows.length - 1, PageDown: index + page, PageUp: index - page }[event.key];
    if (to !== undefined && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      moveTo(to);
    } else if (event.key === "Enter" && event.target instanceof HTMLElement && event.target.getAttribute("role") === "row") {
      event.preventDefault();
      open();
    }
  };

  const [from = 0, to = 0] = range;
  const inSight = rows.slice(from, to);
  const above = topOf(from);
  const below = topOf(rows.length) - topOf(to);
  return html`<div class=${"grid " + props.name} role="grid" aria-label=${props.label} aria-rowcount=${(props.total ?? rows.length) + 1} aria-colcount=${columns.length} onKeyDown=${onKeyDown}>
    <div class="head" role="rowgroup"><div role="row" aria-rowindex="1" class="row">
      ${columns.map(([name, title]) => html`<div key=${name} role="columnheader" class=${"c-" + name}>${title}</div>`)}
    </div></div>
    <div role="rowgroup" ref=${place} style=${{ paddingTop: `${above}px`, paddingBottom: `${below}px` }}>
      ${inSight.map((row, offset) => {
        const at = from + offset;
        const key = rowKey(row);
        const title = heading(row);
        if (title) {
          return html`<div key=${key} role="row" class="row heading" aria-rowindex=${at + 2}><div role="gridcell" aria-colspan=${columns.length}>${title}</div></div>`;
        }
        return html`<div key=${key} data-key=${key} role="row" aria-rowindex=${at + 2} aria-selected=${at === index ? "true" : "false"}
          tabindex=${at === index ? 0 : -1} class=${`row ${at === index ? "active" : ""} ${props.tone?.(row) ?? ""}`}
          onFocus=${() => at !== index && (setActive(key), props.onActive?.(key))}
          onClick=${(/** @type {MouseEvent} */ event) => {
            if (!href || (event.target instanceof Element && event.target.closest("a, button"))) return;
            setActive(key);
            props.onActive?.(key);
            const link = event.currentTarget instanceof Element ? event.currentTarget.querySelector("a") : null;
            link?.click();
          }}>
          ${columns.map(([name]) => html`<div key=${name} role="gridcell" class=${"c-" + name}>${cell(row, name)}</div>`)}
        </div>`;
      })}
    </div>
  </div>`;
}
