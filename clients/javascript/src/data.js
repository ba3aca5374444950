/** Calls the workloads that were declared. One key per workload, with the least right each. */

import { BackendError, errorForm, refuse, UnavailableError } from "./errors.js";
import { ApiClient, path } from "./http.js";
import { checkOptions, checkSlug, misconfigured, setting } from "./settings.js";
import { snakeCase } from "./spec.js";

/** @typedef {import("./http.js").CallOptions} CallOptions */

/** For a whole reply; large models take their time. */
const TIMEOUT_MS = 600_000;
/** Longest silence within a streamed reply. */
const IDLE_MS = 120_000;

/**
 * @typedef {object} DataOptions
 * @property {string} [baseUrl] In a browser, left out means the page's own server.
 * @property {string} [project]
 * @property {string} [apiKey] Of endpoints that are given none.
 * @property {number} [timeoutMs] For each reply as a whole; 10 minutes.
 * @property {number} [idleMs] Longest silence within a streamed reply; 2 minutes.
 * @property {number} [retries] How often a request that was not begun is repeated; 3.
 * @property {boolean} [allowInsecure] Let keys cross the network over plain http.
 * @property {typeof fetch} [fetch] Your own, for proxies, certificates or tests.
 */

/**
 * Give either `prompt` or `messages`. Other parameters of OpenAI's API go along, under its names
 * (`top_p`) or in camelCase (`topP`).
 *
 * @typedef {{prompt?: string, messages?: readonly {role: string, content: unknown}[],
 *   temperature?: number, maxTokens?: number, [parameter: string]: unknown}} TextRequest
 */

/**
 * @typedef {object} TextResult
 * @property {string} text
 * @property {string} model
 * @property {string} [finishReason]
 * @property {any} raw The whole answer.
 */

/**
 * @typedef {object} TextChunk
 * @property {string} text Joined, the texts are the reply.
 * @property {string} [finishReason] On the last chunk only.
 * @property {any} raw
 */

/**
 * @typedef {object} EmbedResult
 * @property {number[][]} embeddings One per input, in the order of the inputs.
 * @property {string} model
 * @property {any} raw
 */

/**
 * @typedef {object} RerankResult
 * @property {{index: number, relevanceScore: number}[]} results Best first.
 * @property {string} model
 * @property {any} raw
 */

/** The endpoints of one project. */
export class DataClient {
  #key;
  #connection;
  #options;

  /** @param {DataOptions} options */
  constructor({ project, apiKey, timeoutMs = TIMEOUT_MS, idleMs = IDLE_MS, ...connection }) {
    if (!project) {
      throw misconfigured("No project was named.", "Set HOLDFAST_PROJECT, or pass project.");
    }
    this.project = checkSlug(project, "project");
    this.#key = apiKey;
    this.#connection = { ...connection, timeoutMs };
    this.#options = { timeoutMs, idleMs };
    new ApiClient(this.#connection); // so that a bad address is told at once
  }

  /**
   * Build a client from arguments, then `HOLDFAST_*`, then `INFERENCEKEY_*`.
   *
   * @param {DataOptions} [options]
   */
  static fromEnv({ baseUrl, project, apiKey, ...more } = {}) {
    return new DataClient({
      baseUrl: setting(baseUrl, "URL", "BASE_URL"),
      project: setting(project, "PROJECT"),
      apiKey: setting(apiKey, "API_KEY"),
      ...more,
    });
  }

  /**
   * Bind one workload and its key.
   *
   * @param {string} slug
   * @param {{apiKey?: string}} [options]
   */
  endpoint(slug, options = {}) {
    const { apiKey = this.#key } = checkOptions(options, "apiKey");
    checkSlug(slug);
    if (!apiKey) {
      throw misconfigured(`There is no key for ${slug}.`, "Set HOLDFAST_API_KEY, or pass apiKey.");
    }
    const api = new ApiClient({ ...this.#connection, token: apiKey });
    return new Endpoint(api, this.project, slug, apiKey, this.#options);
  }
}

/** One workload's OpenAI-shaped endpoint, with its key. `DataClient.endpoint` makes them. */
export class Endpoint {
  #api;
  #root;
  #key;
  #options;

  /**
   * @param {ApiClient} api
   * @param {string} project
   * @param {string} slug
   * @param {string} key
   * @param {{timeoutMs: number, idleMs: number}} options
   */
  constructor(api, project, slug, key, options) {
    this.workloadSlug = slug;
    this.#api = api;
    this.#root = path`/endpoint/${project}/${slug}/v1`;
    this.#key = key;
    this.#options = options;
  }

  /** What OpenAI's own client takes: `new OpenAI(endpoint.openaiOptions())`. */
  openaiOptions() {
    return { baseURL: this.#api.baseUrl + this.#root, apiKey: this.#key };
  }

  /**
   * Complete a chat.
   *
   * @param {TextRequest} request
   * @param {CallOptions} [options]
   * @returns {Promise<TextResult>}
   */
  async generateText(request, options) {
    const raw = await this.#post("chat/completions", "choices", chatBody(request), options);
    const [choice = {}] = raw.choices;
    return {
      text: choice.message?.content ?? "",
      model: raw.model ?? "",
      finishReason: choice.finish_reason ?? undefined,
      raw,
    };
  }

  /**
   * Complete a chat piece by piece. Throws when the reply breaks off: it never looks complete.
   *
   * @param {TextRequest} request
   * @param {CallOptions} [options]
   * @returns {AsyncGenerator<TextChunk, void>}
   */
  async *generateTextStream(request, options) {
    const body = { model: this.workloadSlug, ...chatBody(request), stream: true };
    const chunks = this.#api.stream("POST", `${this.#root}/chat/completions`, {
      ...CALL, ...this.#options, ...options, body,
    });
    for await (const { event, data: raw } of chunks) {
      if (raw === "[DONE]") return;
      if (event === "error" || raw === null || typeof raw !== "object" || raw.error) {
        const text = typeof raw === "string" ? raw : JSON.stringify(raw);
        throw new BackendError(
          `The reply of ${this.workloadSlug} ended in an error: ${errorForm(text).message || text}`,
          { code: "stream_error", hint: "Ask again; read the workload's log if it goes on." },
        );
      }
      const [choice] = raw.choices ?? [];
      yield {
        text: choice?.delta?.content ?? "",
        finishReason: choice?.finish_reason ?? undefined,
        raw,
      };
    }
    throw new UnavailableError(
      `The reply of ${this.workloadSlug} broke off before it was complete.`,
      { code: "unavailable", hint: "Ask again." },
    );
  }

  /**
   * Make one vector per text.
   *
   * @param {string | readonly string[]} input
   * @param {CallOptions} [options]
   * @returns {Promise<EmbedResult>}
   */
  async embed(input, options) {
    const texts = typeof input === "string" ? [input] : input;
    const raw = await this.#post("embeddings", "data", { input: texts }, options);
    /** @type {{index?: number, embedding: number[]}[]} */
    const ordered = [...raw.data].sort((one, other) => (one.index ?? 0) - (other.index ?? 0));
    return { embeddings: ordered.map((each) => each.embedding), model: raw.model ?? "", raw };
  }

  /**
   * Score documents against a query, best first.
   *
   * @param {{query: string, documents: readonly string[], topN?: number}} request
   * @param {CallOptions} [options]
   * @returns {Promise<RerankResult>}
   */
  async rerank(request, options) {
    const { topN, ...rest } = checkOptions(request, "query documents topN");
    const raw = await this.#post("rerank", "results", { ...rest, top_n: topN }, options);
    /** @type {{index: number, relevance_score: number}[]} */
    const scored = [...raw.results].sort((one, other) => other.relevance_score - one.relevance_score);
    const results = scored.map((each) => ({ index: each.index, relevanceScore: each.relevance_score }));
    return { results, model: raw.model ?? "", raw };
  }

  /**
   * @param {string} route
   * @param {string} field The list that has to be in the answer, and not empty.
   * @param {Record<string, unknown>} sent
   * @param {CallOptions} [options]
   */
  async #post(route, field, sent, options) {
    const { timeoutMs } = this.#options;
    const body = { model: this.workloadSlug, ...sent };
    const asked = { ...CALL, timeoutMs, ...options, body };
    const { body: raw } = await this.#api.request("POST", `${this.#root}/${route}`, asked);
    if (!raw?.[field]?.length) {
      throw new BackendError(`The server of ${this.workloadSlug} answered without ${field}.`, {
        code: "unreadable",
      });
    }
    return raw;
  }
}

/** A reply changes nothing, and is not asked for twice: it costs time on a GPU. */
const CALL = { writes: false, repeats: false };

/** @param {TextRequest} request */
function chatBody({ prompt, messages, ...more }) {
  if ((prompt === undefined) === (messages === undefined)) {
    throw refuse("prompt", "it or messages is needed.", "Give one of the two.");
  }
  /** @type {Record<string, unknown>} */
  const body = { messages: messages ?? [{ role: "user", content: prompt }] };
  for (const [name, value] of Object.entries(more)) {
    const sent = snakeCase(name);
    if (sent in body) throw refuse(name, "it is given twice.", "Give it once.");
    if (value !== undefined) body[sent] = value;
  }
  return body;
}
