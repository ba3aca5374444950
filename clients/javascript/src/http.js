/**
 * Sends requests to one server, repeats them where that is safe, keeps the deadline, and follows
 * streams. The dashboard speaks to every route through `ApiClient`; the other clients stand on it.
 */

import {
  errorFrom,
  HoldfastError,
  noAnswer,
  refuse,
  RETRIED,
  retryAfter,
  turnedAway,
  UnavailableError,
  unreadable,
} from "./errors.js";
import { checkOptions, misconfigured, serverAddress, userAgent } from "./settings.js";

/** Milliseconds for a whole call, retries included. */
export const TIMEOUT_MS = 30_000;
const RETRIES = 3;
const READS = ["GET", "HEAD"];
/** Errors of Node's sockets from before anything was sent. Browsers do not tell. */
const UNSENT = /ECONNREFUSED|ENOTFOUND|EAI_AGAIN|UNREACH|CONNECT_TIMEOUT/;
const MAX_RETRY_AFTER = 60;
/** Longest pause before a new try of a stream. */
const RECONNECT_MS = 5000;
/** Longest silence of a stream of ours; the server says that it is alive every 15 seconds. */
const IDLE_MS = 45_000;
/** A connection that stood so long counts as one that works. */
const STEADY_MS = 10_000;
/** A timer longer than this fires at once. */
const MAX_TIMER = 2 ** 31 - 1;
const MAX_LINE = 4 * 1024 * 1024;
const CONNECTION = "baseUrl token session timeoutMs retries allowInsecure fetch";
const EVENT_STREAM = "text/event-stream";

/**
 * @typedef {object} CallOptions
 * @property {AbortSignal} [signal] Ends the call; it then throws the signal's reason.
 * @property {number} [timeoutMs] For the whole call: connecting, every retry, and the whole body.
 */

/** @typedef {Record<string, string | number | boolean | null | undefined>} Query */

/**
 * @typedef {object} RequestOptions
 * @property {Query} [query] What is undefined, null or "" is left out.
 * @property {unknown} [body] Sent as JSON.
 * @property {Record<string, string>} [headers]
 * @property {string} [idempotencyKey] Only for routes that honour it: the write may be repeated.
 * @property {string} [accept] The type of the answer; another one is an error.
 * @property {number} [idleMs] For streams: the longest silence.
 * @property {boolean} [writes] Whether it may change something; by default, unless it is a GET.
 * @property {boolean} [repeats] Whether it may be sent twice; by default when it writes nothing,
 *   or under an idempotency key.
 * @property {Call} [call] One that several requests share, in place of `timeoutMs` and `signal`.
 */

/**
 * @typedef {object} Answer
 * @property {number} status
 * @property {Headers} headers
 * @property {any} body The JSON, or undefined when there was none.
 * @property {boolean} repeated An earlier try of the same write got no answer.
 */

/**
 * One server-sent event, its data read as JSON where it is JSON. `lost` and `back` are our own
 * marks: the connection is gone, with the `error`; and it is there again.
 *
 * @typedef {{id?: string, event: string, data?: any, error?: unknown}} StreamEvent
 */

/** One server, one credential: a token, or the cookie of a session. */
export class ApiClient {
  #options;

  /**
   * @param {object} [options]
   * @param {string} [options.baseUrl] In a browser, left out means the page's own server.
   * @param {string} [options.token]
   * @param {boolean} [options.session] Send the cookie of the same origin, and guard writes; one
   *   without an idempotency key is sent once, for a person decides whether to repeat it.
   * @param {number} [options.timeoutMs] Default for calls; 30 seconds.
   * @param {number} [options.retries] How often a request is repeated at most; 3.
   * @param {boolean} [options.allowInsecure] Let a token cross the network over plain http.
   * @param {typeof fetch} [options.fetch] Your own, for proxies, certificates or tests.
   */
  constructor(options = {}) {
    const { baseUrl, token, session, allowInsecure = false } = checkOptions(options, CONNECTION);
    if (session && token) {
      throw misconfigured("A token and a session were given.", "Give one of the two.");
    }
    /** Where the server is; holds no credential. */
    this.baseUrl = serverAddress(baseUrl, token, allowInsecure);
    this.#options = { ...options };
  }

  /**
   * Read a resource.
   *
   * @param {string} path
   * @param {{query?: Query} & CallOptions} [options]
   * @returns {Promise<any>}
   */
  async get(path, options) {
    return (await this.request("GET", path, options)).body;
  }

  /**
   * Write: POST, PUT, PATCH or DELETE. Answers the JSON, or undefined when there is none.
   *
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @param {{query?: Query, idempotencyKey?: string, headers?: Record<string, string>}
   *   & CallOptions} [options]
   * @returns {Promise<any>}
   */
  async send(method, path, body, options) {
    return (await this.request(method, path, { ...options, body })).body;
  }

  /**
   * Send one request and read its answer. Throws what an answer other than success means.
   *
   * A GET, and a write under an idempotency key, is repeated when its answer was lost or says
   * that trying again may help; any other write only when it surely was not begun, and not at all
   * in a session.
   *
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions & CallOptions} [options]
   * @returns {Promise<Answer>}
   */
  async request(method, path, options = {}) {
    const call = options.call ?? new Call(options, this.#options.timeoutMs ?? TIMEOUT_MS);
    const { writes = !READS.includes(method) } = options;
    try {
      return await this.#exchange(call, method, path, options, async (response, repeated) => {
        const { status, headers } = response;
        const text = await response.text();
        try {
          const body = status === 204 ? undefined : JSON.parse(text);
          return { status, headers, body, repeated };
        } catch {
          throw unreadable(path, "a text", writes);
        }
      });
    } finally {
      if (!options.call) call.end();
    }
  }

  /**
   * Follow server-sent events for as long as you listen. After a cut it resumes behind the last
   * id, waiting longer from try to try. Ends by `break`, or by the signal, whose reason it throws;
   * an error that trying again does not mend, a revoked token for one, is thrown too.
   *
   * @param {string} path
   * @param {object} [options]
   * @param {string | number} [options.after] Begin behind this id.
   * @param {Query} [options.query]
   * @param {AbortSignal} [options.signal]
   * @param {number} [options.idleMs] The longest silence; 45 seconds.
   * @param {boolean} [options.open] Yield `{event: "open"}` too, whenever there is a connection.
   * @returns {AsyncGenerator<StreamEvent, never>}
   */
  async *events(path, { after, query, signal, idleMs = IDLE_MS, open = false } = {}) {
    let id = after === undefined ? undefined : String(after);
    let lost = false;
    for (let tries = 0; ; tries++) {
      const began = performance.now();
      let error;
      try {
        const headers = id === undefined ? undefined : { "Last-Event-ID": id };
        for await (const each of this.#open("GET", path, { query, signal, idleMs, headers })) {
          const silent = each.data === undefined;
          if (lost) yield { event: "back" };
          lost = false;
          if (!silent || (open && each.id === undefined)) yield each;
          if (!silent) tries = 0;
          // A reset starts counting anew; without an id of its own there is nothing to resume.
          if (each.id !== undefined || each.event === "reset") id = each.id;
        }
      } catch (caught) {
        if (signal?.aborted || !(caught instanceof UnavailableError)) throw caught;
        error = caught;
      }
      if (performance.now() - began > STEADY_MS) tries = 0;
      if (!lost) {
        lost = true;
        yield { event: "lost", error };
      }
      const pause = Math.min(1000 * 2 ** tries, RECONNECT_MS) * jitter();
      await sleep(asked(error?.retryAfter) ?? pause, signal);
    }
  }

  /**
   * Send one request and yield the events of its answer, once and without resuming.
   *
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions & CallOptions} [options]
   * @returns {AsyncGenerator<StreamEvent, void>}
   */
  async *stream(method, path, options) {
    for await (const each of this.#open(method, path, options)) {
      if (each.data !== undefined) yield each;
    }
  }

  /**
   * Read an answer line by line as it comes: a log, or an export.
   *
   * @param {string} path
   * @param {RequestOptions & CallOptions} [options]
   * @returns {AsyncGenerator<string, void>}
   */
  async *lines(path, options) {
    yield* this.#lines("GET", path, { accept: "text/plain", ...options });
  }

  /**
   * Yield events, and without data: that there is a connection, and an id that stands alone.
   *
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions & CallOptions} [options]
   * @returns {AsyncGenerator<StreamEvent, void>}
   */
  async *#open(method, path, options) {
    /** @type {Record<string, string | undefined>} */
    let fields = {};
    for await (const line of this.#lines(method, path, { accept: EVENT_STREAM, ...options }, true)) {
      if (line === undefined) yield { event: "open" };
      else if (line) {
        const [, field = "", value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
        fields[field] = field === "data" && fields.data !== undefined
          ? `${fields.data}\n${value}` : value;
      } else {
        const { id, event = "message", data } = fields;
        // An id may come alone: the server says where a stream begins before there is an event.
        if (data !== undefined || id !== undefined) yield { id, event, data: data && parsed(data) };
        fields = {};
      }
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions & CallOptions} options
   * @param {boolean} [marked] Yield undefined first, once the answer has begun.
   * @returns {AsyncGenerator<any, void>}
   */
  async *#lines(method, path, options, marked = false) {
    const call = new Call(options, Infinity);
    const { writes = !READS.includes(method) } = options;
    try {
      const { body } = await this.#exchange(call, method, path, options, async (found) => found);
      if (marked) yield undefined;
      const reader = body?.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      while (reader) {
        const { done, value } = await call.reading(reader.read()).catch((error) => {
          throw call.failure(error, path, writes);
        });
        if (done) break;
        const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
        // What follows the last line end may be cut, so it is dropped when the stream ends.
        rest = parts.pop() ?? "";
        for (const line of parts) yield line.replace(/\r$/, "");
        if (rest.length > MAX_LINE) throw unreadable(path, "a line of over 4 MiB", writes);
      }
    } finally {
      call.end();
    }
  }

  /**
   * Send, and repeat where that is safe, until `read` has read a success.
   *
   * @template T
   * @param {Call} call
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions} options
   * @param {(response: Response, lost: boolean) => Promise<T>} read
   * @returns {Promise<T>}
   */
  async #exchange(call, method, path, options, read) {
    const reads = READS.includes(method);
    const { writes = !reads } = options;
    const { repeats = !writes || options.idempotencyKey !== undefined } = options;
    // No other server, and no way up, which a browser would take.
    if (!/^(\/(?!\.\.?(\/|$))[^/\\?]+)+(\?|$)/.test(path)) {
      throw refuse("path", `${path} leads elsewhere.`, "Begin with a slash, leave no part empty.");
    }
    const { token, session, retries = RETRIES, fetch: ask = fetch } = this.#options;
    const { body, idempotencyKey, accept = "application/json" } = options;
    /** @type {Record<string, string>} */
    const sent = { ...options.headers, Accept: accept, ...userAgent() };
    if (token) sent.Authorization = `Bearer ${token}`;
    if (session && !reads) sent["Holdfast-CSRF"] = "1";
    if (body !== undefined) sent["Content-Type"] = "application/json";
    if (idempotencyKey) sent["Idempotency-Key"] = idempotencyKey;
    let lost = false;
    for (let attempt = 0; ; attempt++) {
      let pause = 250 * 2 ** attempt * jitter();
      try {
        const asking = ask(this.baseUrl + path + queryString(options.query), {
          method,
          headers: sent,
          body: body === undefined ? body : JSON.stringify(body),
          credentials: session ? "same-origin" : "omit",
          // A redirect would carry the credential elsewhere.
          redirect: "manual",
          cache: "no-store",
          signal: call.signal,
        });
        // How long a model thinks before it begins is bounded by the whole time alone.
        const response = await (reads ? call.reading(asking) : asking);
        const { status, headers, ok } = response;
        if (ok) {
          const type = headers.get("content-type")?.split(";", 1)[0] ?? "nothing";
          if (status !== 204 && type !== accept) throw unreadable(path, type, writes);
          return await read(response, lost);
        }
        const text = await response.text();
        const error = errorFrom({ path, wrote: writes, lost, status, headers, text });
        pause = asked(retryAfter(headers)) ?? pause;
        const again = repeats ? RETRIED.includes(status) : !session && turnedAway(status, headers);
        if (attempt >= retries || !again || pause >= call.left()) throw error;
        lost ||= error.outcomeUnknown;
      } catch (error) {
        if (error instanceof HoldfastError) throw error;
        const unsent = UNSENT.test(/** @type {any} */ (error)?.cause?.code);
        lost ||= writes && !unsent;
        const again = repeats || (unsent && !session);
        if (attempt >= retries || pause >= call.left() || call.signal.aborted || !again) {
          throw call.failure(error, path, lost);
        }
      }
      await sleep(pause, call.signal).catch((error) => {
        throw call.failure(error, path, lost);
      });
    }
  }
}

/** One call's time and signal, over everything that it asks and all of the tries. */
export class Call {
  #controller = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #timeoutMs;
  #end;
  #idleMs;
  #outer;
  #abort;
  #silent = false;

  /**
   * @param {CallOptions & {idleMs?: number}} options
   * @param {number} fallback
   */
  constructor({ signal, timeoutMs, idleMs = Infinity }, fallback) {
    const ms = (this.#timeoutMs = timeoutMs ?? fallback);
    if (!(ms > 0)) {
      throw refuse("timeoutMs", `${ms} leaves no time.`, "Give milliseconds above 0.");
    }
    this.#end = performance.now() + ms;
    this.#idleMs = idleMs;
    this.#outer = signal;
    this.#abort = () => this.#controller.abort(signal?.reason);
    signal?.throwIfAborted();
    signal?.addEventListener("abort", this.#abort);
    if (ms <= MAX_TIMER) this.#timer = setTimeout(() => this.#controller.abort(), ms);
  }

  get signal() {
    return this.#controller.signal;
  }

  /** Milliseconds that are left. */
  left() {
    return this.#end - performance.now();
  }

  /**
   * Wait for the other side, within the longest silence. The caller's own time does not count.
   *
   * @template T
   * @param {Promise<T>} promise
   */
  async reading(promise) {
    const timer = this.#idleMs <= MAX_TIMER && setTimeout(() => {
      this.#silent = true;
      this.#controller.abort();
    }, this.#idleMs);
    try {
      return await promise;
    } finally {
      if (timer) clearTimeout(timer);
    }
  }

  /**
   * Say why a request got no whole answer.
   *
   * @param {unknown} cause
   * @param {string} path
   * @param {boolean} unknown
   */
  failure(cause, path, unknown) {
    if (this.#outer?.aborted) return this.#outer.reason;
    if (this.#silent) return noAnswer(`${path} fell silent.`, unknown);
    if (this.signal.aborted || this.left() <= 0) {
      const time = `${this.#timeoutMs / 1000} s`;
      return noAnswer(`${path} gave no full answer in ${time}.`, unknown, true);
    }
    const inner = /** @type {any} */ (cause)?.cause ?? cause;
    return noAnswer(`${path} gave no answer: ${inner?.code ?? inner}.`, unknown, false, cause);
  }

  /** Let go of the connection and of the timers. */
  end() {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
    this.#controller.abort();
  }
}

/**
 * Write a path with its parts encoded: path`/api/projects/${project}/workloads/${slug}`.
 *
 * @param {TemplateStringsArray} strings
 * @param {...(string | number)} parts
 */
export function path(strings, ...parts) {
  return String.raw({ raw: strings }, ...parts.map(encodeURIComponent));
}

/** @param {Query} [query] */
function queryString(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} [signal]
 */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve(undefined);
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/**
 * Milliseconds that a server asked us to wait, within reason.
 *
 * @param {number} [seconds]
 */
function asked(seconds) {
  return seconds === undefined ? undefined : Math.min(seconds, MAX_RETRY_AFTER) * 1000;
}

function jitter() {
  return 0.5 + Math.random() / 2;
}
