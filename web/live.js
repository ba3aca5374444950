/** What happens while one looks: server-sent events of the project, with resume. */

import { signal } from "./vendor/preact.js";
import { api, failureOf, has, inGitops, inProject, isAborted } from "./api.js";

/** @typedef {import("./types").ServerEvent} ServerEvent */

/** Since when nothing was heard; null while the connection stands, undefined before it does. */
export const staleSince = signal(/** @type {Date | null | undefined} */ (undefined));

/** The time as ages are counted from it; it moves twice a minute, and not while nobody looks. */
export const now = signal(Date.now());

/** @type {Set<(event: ServerEvent) => void>} */
const listeners = new Set();

/** @param {(event: ServerEvent) => void} listener @returns {() => void} ends it */
export function onEvent(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Milliseconds that a tab in the background keeps its streams. */
const HIDDEN_MS = 10_000;

/**
 * Do something while the page is looked at. What it opened is ended soon after the tab is hidden,
 * and it begins anew once it is shown: a browser has six connections to a server for all its tabs
 * together, and those that nobody looks at would take them from the one that somebody needs.
 * @param {(shown: AbortSignal) => void} work
 * @param {AbortSignal} ended
 */
export function whileShown(work, ended) {
  /** @type {AbortController | null} */
  let running = null;
  let timer = 0;
  const stop = () => {
    running?.abort();
    running = null;
  };
  const look = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(stop, HIDDEN_MS);
    else if (!running) work((running = new AbortController()).signal);
  };
  document.addEventListener("visibilitychange", look);
  ended.addEventListener("abort", () => {
    document.removeEventListener("visibilitychange", look);
    clearTimeout(timer);
    stop();
  });
  look();
}

/** Follow a project until the signal ends it. @param {AbortSignal} ended */
export function follow(ended) {
  whileShown(listen, ended);
}

/** @param {AbortSignal} ended */
function listen(ended) {
  staleSince.value = undefined;
  const away = new Set();
  /** @param {string} path @param {boolean} here */
  const mark = (path, here) => {
    if (here) away.delete(path);
    else away.add(path);
    if (!away.size) staleSince.value = null;
    else if (!here) staleSince.value ??= new Date();
  };
  /** @param {string} path */
  const read = async (path) => {
    away.add(path);
    try {
      // Nothing is older than 0, so the first thing to come is a reset: what was read before the
      // stream stood is read again, and no change falls in between.
      for await (const event of api.events(path, { after: 0, signal: ended })) {
        mark(path, event.event !== "lost");
        if (event.event === "lost" || event.event === "back") continue;
        for (const listener of [...listeners]) listener(/** @type {ServerEvent} */ (event));
      }
    } catch (error) {
      if (isAborted(error) || ended.aborted) return;
      failureOf(error);
      mark(path, false);
    }
  };
  if (has("applications")) void read(inGitops("/events"));
  if (has("workloads")) void read(inProject("/events"));
}

/**
 * Do something soon after events, once for many of them.
 * @param {(events: ServerEvent[]) => void} work
 * @param {number} [delay]
 * @returns {() => void} ends it
 */
export function afterEvents(work, delay = 120) {
  /** @type {ServerEvent[]} */
  let gathered = [];
  let timer = 0;
  const end = onEvent((event) => {
    gathered.push(event);
    timer ||= setTimeout(() => {
      timer = 0;
      const events = gathered;
      gathered = [];
      work(events);
    }, delay);
  });
  return () => {
    end();
    clearTimeout(timer);
  };
}

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 30_000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) now.value = Date.now();
});
