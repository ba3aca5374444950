/**
 * Where a client connects, and as whom: an argument first, then `HOLDFAST_*`, then the
 * `INFERENCEKEY_*` names that existing scripts have set.
 */

import { ConfigurationError, refuse } from "./errors.js";

export const VERSION = "0.1.0";

/** @type {{env?: Record<string, string | undefined>, versions?: {node?: string}}} */
export const runtime = /** @type {any} */ (globalThis).process ?? {};

/**
 * Return the argument, else the variable. A browser has none.
 *
 * @param {string | undefined} given
 * @param {string} name Behind `HOLDFAST_`.
 * @param {string} [theirs] Behind `INFERENCEKEY_`.
 */
export function setting(given, name, theirs = name) {
  const { env = {} } = runtime;
  return given || env[`HOLDFAST_${name}`] || env[`INFERENCEKEY_${theirs}`];
}

/**
 * @param {string} happened
 * @param {string} hint
 */
export function misconfigured(happened, hint) {
  return new ConfigurationError(happened, { code: "configuration", hint });
}

/**
 * Check where the server is. A token in clear over a network is refused.
 *
 * @param {string | undefined} baseUrl
 * @param {string | undefined} token
 * @param {boolean} allowInsecure
 */
export function serverAddress(baseUrl, token, allowInsecure) {
  if (token && !/^[!-~]+$/.test(token)) {
    throw misconfigured(
      "The token holds characters that no token has.",
      "Copy it again, without spaces or line ends.",
    );
  }
  if (!baseUrl) {
    if ("location" in globalThis) return "";
    throw misconfigured("No server was named.", "Set HOLDFAST_URL, or pass baseUrl.");
  }
  let url;
  try {
    url = new URL(baseUrl);
  } catch {
    // Said below.
  }
  if (!url || !/^https?:\/\/[^?#@]+$/i.test(baseUrl)) {
    throw misconfigured("baseUrl is not a server address.", "Use https://HOST[:PORT].");
  }
  const insecure = allowInsecure || /^(1|true|yes)$/.test(setting("", "ALLOW_INSECURE") ?? "");
  const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  if (token && url.protocol === "http:" && !loopback && !insecure) {
    throw misconfigured(
      `baseUrl is http:// to ${url.hostname}: the token would cross the network in clear.`,
      "Use https://, or set HOLDFAST_ALLOW_INSECURE=1 (allowInsecure).",
    );
  }
  return url.origin + url.pathname.replace(/\/+$/, "");
}

/** Node is named; a browser names itself, and another header would need leave by CORS. */
export function userAgent() {
  const node = runtime.versions?.node;
  return node && { "User-Agent": `holdfast-sdk/${VERSION} node/${node}` };
}

/**
 * Return the options, unless one is not known: a misspelt `onDrift` must not count as the default.
 *
 * @template {object} T
 * @param {T} options
 * @param {string} known
 */
export function checkOptions(options, known) {
  for (const name of Object.keys(options)) {
    if (!known.split(" ").includes(name)) throw refuse(name, "no such option.", `Use ${known}.`);
  }
  return options;
}

/**
 * Check a slug that somebody gave: a rewritten one would name another workload than they think.
 *
 * @param {string} text
 * @param {string} [field]
 */
export function checkSlug(text, field = "slug") {
  if (!/^(?=.{1,63}$)[a-z0-9]+(-[a-z0-9]+)*$/.test(text)) {
    throw refuse(field, "it is no slug.", "Use a-z, 0-9 and single dashes, as list() shows it.");
  }
  return text;
}
