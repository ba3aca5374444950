/** Where the page is: the address is the state. Links are plain links; clicks on ours stay here. */

import { computed, signal } from "./vendor/preact.js";

const BASE = "/ui/";
const address = signal(location.pathname + location.search);

/**
 * @typedef {object} Route
 * @property {string} screen `inbox`, `drifts`, …, `me`, `login`, or empty at the root
 * @property {string} project empty outside a project
 * @property {string} id of what is shown, where it is one thing
 * @property {URLSearchParams} query
 */

/** @param {string} text @returns {Route} */
export function parseRoute(text) {
  const url = new URL(text, location.origin);
  const parts = url.pathname.slice(BASE.length).split("/").filter(Boolean).map(decode);
  const query = url.searchParams;
  if (parts[0] !== "p") return { screen: parts[0] ?? "", project: "", id: "", query };
  return { project: parts[1] ?? "", screen: parts[2] ?? "", id: parts.slice(3).join("/"), query };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = computed(() => parseRoute(address.value));

/** @param {string} project @param {string} screen @param {string} [id] @param {Record<string, string>} [query] */
export function pathTo(project, screen, id = "", query = {}) {
  const parts = [project, screen, ...(id ? [id] : [])].map(encodeURIComponent);
  const asked = new URLSearchParams(query).toString();
  return `${BASE}p/${parts.join("/")}${asked ? "?" + asked : ""}`;
}

/** @param {string} path @param {{ replace?: boolean }} [how] */
export function go(path, { replace = false } = {}) {
  if (path === address.peek()) return;
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  address.value = path;
  if (!replace) scrollTo(0, 0);
}

/** Change some of the query; what is empty is left out. @param {Record<string, string>} changes */
export function setQuery(changes) {
  const query = new URLSearchParams(route.peek().query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname + (text ? "?" + text : ""), { replace: true });
}

/** @param {string | null} text only a path of this page is followed after signing in */
export function safeNext(text) {
  if (!text) return BASE;
  try {
    const url = new URL(text, location.origin);
    const ours = url.origin === location.origin && url.pathname.startsWith(BASE);
    return ours && !url.pathname.startsWith(BASE + "assets/") ? url.pathname + url.search : BASE;
  } catch {
    return BASE;
  }
}

addEventListener("popstate", () => {
  address.value = location.pathname + location.search;
});

addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(BASE) || link.pathname.startsWith(BASE + "assets/")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
