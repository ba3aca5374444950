/** The keyboard: one listener, and maps of keys that screens put on while they are shown. */

import { signal, useLayoutEffect, useRef } from "./vendor/preact.js";

/** @typedef {Record<string, (event: KeyboardEvent) => void>} KeyMap from `a`, `?`, `Enter`, `g i`, `Ctrl-k` */

/** @type {{ map: () => KeyMap, modal: boolean }[]} */
const layers = [];

/**
 * The first of two keys, once it was pressed: `g`. It waits for the second however long that takes,
 * so that the second never does what it does alone; Escape and a click end it.
 */
export const prefix = signal("");

/**
 * Put keys on while a component is shown. With `modal`, nothing below it hears any.
 * @param {KeyMap} map
 * @param {{ modal?: boolean }} [how]
 */
export function useKeys(map, { modal = false } = {}) {
  const newest = useRef(map);
  newest.current = map;
  useLayoutEffect(() => { // before the next key can come
    const layer = { map: () => newest.current, modal };
    layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
    };
  }, [modal]);
}

/** @param {KeyboardEvent} event */
function isTyping(event) {
  const target = event.target;
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** @param {KeyboardEvent} event */
function nameOf(event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.shiftKey && key !== key.toUpperCase()) return `Shift-${key}`; // a letter: another key
  return event.ctrlKey || event.metaKey ? `Ctrl-${key}` : key;
}

/** @param {string} name */
function find(name) {
  for (const layer of layers.toReversed()) {
    const found = layer.map()[name];
    if (found || layer.modal) return found;
  }
  return undefined;
}

/** True where another key may follow. A window over the page hides the keys below it. @param {string} name */
function begins(name) {
  for (const layer of layers.toReversed()) {
    if (Object.keys(layer.map()).some((each) => each.startsWith(name + " "))) return true;
    if (layer.modal) return false;
  }
  return false;
}

addEventListener("pointerdown", () => (prefix.value = ""));
addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const name = nameOf(event);
  const always = name.startsWith("Ctrl-") || name === "Escape";
  if (isTyping(event) && !always) return;
  // Enter and space belong to the button or link that has the focus.
  const control = event.target instanceof Element && event.target.closest("a, button, summary, [role=tab]");
  if (control && (name === "Enter" || name === " ")) return;
  if (event.key === "Shift") return;
  const first = prefix.value;
  const known = first && !always ? find(`${first} ${name}`) : find(name);
  prefix.value = "";
  if (!first && !known && !always && begins(name)) {
    prefix.value = name;
    return;
  }
  if (!known) return;
  event.preventDefault();
  known(event);
});
