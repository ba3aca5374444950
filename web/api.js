/** The one way to the server: the public HTTP API, by the client that everybody else uses. */

import { ApiClient } from "/ui/assets/client/http.js";
import { computed, signal } from "./vendor/preact.js";
import { route } from "./route.js";

export const api = new ApiClient({ baseUrl: location.origin, session: true });

/** Who is signed in; undefined until it is known, null for nobody. */
export const me = signal(/** @type {import("./types").Me | null | undefined} */ (undefined));

/** The project in the address, or the first that there is. */
export const project = computed(() => route.value.project || me.value?.projects[0]?.project || "");

const scopes = computed(() => {
  const mine = me.value?.projects.find((each) => each.project === project.value);
  return new Set(mine?.scopes ?? []);
});

/** @param {"read" | "write" | "approve" | "admin"} scope */
export function may(scope) {
  const held = scopes.value;
  return held.has(scope) || held.has("admin") || (scope === "read" && held.size > 0);
}

/** @param {"workloads" | "applications" | "data-plane"} feature */
export function has(feature) {
  return me.value?.server.features.includes(feature) ?? false;
}

/** @param {string} path below the project */
export function inProject(path) {
  return `/api/projects/${encodeURIComponent(project.peek())}${path}`;
}

/** @param {string} path below the project's applications */
export function inGitops(path) {
  return inProject(`/gitops${path}`);
}

/**
 * @typedef {object} Failure what went wrong, as it is shown
 * @property {string} message
 * @property {string} code
 * @property {number} status
 * @property {string} hint
 * @property {string} requestId
 */

/** @param {unknown} error @returns {Failure} */
export function failureOf(error) {
  const known = /** @type {any} */ (error);
  const failure = {
    message: String(known?.message ?? error),
    code: String(known?.code ?? ""),
    status: Number(known?.status ?? 0),
    hint: String(known?.hint ?? ""),
    requestId: String(known?.requestId ?? ""),
  };
  if (failure.status === 401 && me.peek()) me.value = null;
  return failure;
}

/** True for what was ended on purpose: another screen was opened. @param {unknown} error */
export function isAborted(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/**
 * Read something. What is asked for is checked by the server's own tests, not here.
 * @template T
 * @param {string} path
 * @param {{ query?: Record<string, string | number | undefined>, signal?: AbortSignal }} [how]
 * @returns {Promise<T>}
 */
export async function read(path, how = {}) {
  const query = Object.fromEntries(Object.entries(how.query ?? {}).filter(([, value]) => value !== undefined && value !== ""));
  try {
    return /** @type {T} */ (await api.get(path, { query, signal: how.signal }));
  } catch (error) {
    if (!isAborted(error)) failureOf(error);
    throw error;
  }
}

/**
 * Write something, once: decisions are not repeated by themselves.
 * @template T
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<T>}
 */
export async function write(method, path, body) {
  try {
    return /** @type {T} */ (await api.send(method, path, body));
  } catch (error) {
    failureOf(error);
    throw error;
  }
}
