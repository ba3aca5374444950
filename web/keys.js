/** The keyboard: one listener, and maps of keys that screens put on while they are shown. */

import { useEffect, useRef } from "./vendor/preact.js";

/** @typedef {Record<string, (event: KeyboardEvent) => void>} KeyMap from `a`, `?`, `Enter`, `g i`, `Ctrl-k` */

/** @type {{ map: () => KeyMap, modal: boolean }[]} */
const layers = [];
let prefix = "";
let prefixTimer = 0;

/**
 * Put keys on while a component is shown. With `modal`, nothing below it hears any.
 * @param {KeyMap} map
 * @param {{ modal?: boolean }} [how]
 */
export function useKeys(map, { modal = false } = {}) {
  const newest = useRef(map);
  newest.current = map;
  useEffect(() => {
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

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  const name = nameOf(event);
  const always = name.startsWith("Ctrl-") || name === "Escape";
  if (isTyping(event) && !always) return;
  // Enter and space belong to the button or link that has the focus.
  const control = event.target instanceof Element && event.target.closest("a, button, summary, [role=tab]");
  if (control && (name === "Enter" || name === " ")) return;
  const known = prefix ? find(`${prefix} ${name}`) : find(name);
  const starts = !prefix && layers.some((layer) => Object.keys(layer.map()).some((each) => each.startsWith(name + " ")));
  clearTimeout(prefixTimer);
  prefix = "";
  if (!known && starts && !always) {
    prefix = name;
    prefixTimer = setTimeout(() => (prefix = ""), 1500);
    return;
  }
  if (!known) return;
  event.preventDefault();
  known(event);
});
