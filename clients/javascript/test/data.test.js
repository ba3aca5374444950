/** The data client: a real workload behind a real server, and backends that misbehave. */

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import * as holdfast from "../src/index.js";
import { DataClient, ManagementClient } from "../src/index.js";
import { cut, events, hang, json, scripted } from "./support/scripted.js";
import { echoSpec, startServer } from "./support/server.js";

async function all(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

describe("against a real workload", () => {
  let server, endpoint, key;
  before(async () => {
    server = await startServer();
    const mgmt = new ManagementClient({ baseUrl: server.url, project: "acme", sdkToken: server.admin });
    const { workloadSlug } = await mgmt.ensure(echoSpec("Chat"));
    await mgmt.waitUntilReady(workloadSlug, { timeoutMs: 60_000, silent: true });
    key = await server.make({ name: "app", kind: "live", workload: workloadSlug });
    endpoint = new DataClient({ baseUrl: server.url, project: "acme" }).endpoint("chat", { apiKey: key });
  });
  after(() => server.close());

  it("generateText answers a prompt or messages", async () => {
    const one = await endpoint.generateText({ prompt: "hello there", maxTokens: 20, temperature: 0 });
    assert.match(one.text, /hello there/);
    assert.equal(one.model, "tiny");
    assert.equal(one.finishReason, "stop");
    assert.ok(one.raw.usage);
    const many = await endpoint.generateText({ messages: [{ role: "user", content: "again" }] });
    assert.match(many.text, /again/);
    const short = await endpoint.generateText({ prompt: "one two three four", maxTokens: 1 });
    assert.equal(short.finishReason, "length");
  });

  it("generateTextStream gives the same text piece by piece", async () => {
    const whole = await endpoint.generateText({ prompt: "a b c d e" });
    const pieces = await all(endpoint.generateTextStream({ prompt: "a b c d e" }));
    assert.ok(pieces.length > 2);
    assert.equal(pieces.map((each) => each.text).join(""), whole.text);
    assert.equal(pieces.findLast((each) => each.finishReason).finishReason, "stop");
  });

  it("a listener who leaves ends the reply", async () => {
    for await (const piece of endpoint.generateTextStream({ prompt: "a b c d e" })) {
      assert.ok(piece.raw);
      break;
    }
  });

  it("embed gives one vector per text, and rerank the best first", async () => {
    const { embeddings } = await endpoint.embed(["one", "two"]);
    assert.equal(embeddings.length, 2);
    assert.deepEqual((await endpoint.embed("one")).embeddings, [embeddings[0]]);
    const documents = ["about dogs", "about cats and dogs", "cats"];
    const { results } = await endpoint.rerank({ query: "cats", documents, topN: 2 });
    assert.equal(results.length, 2);
    assert.ok(results[0].relevanceScore >= results[1].relevanceScore);
    assert.equal(typeof results[0].index, "number");
  });

  it("openaiOptions is what OpenAI's client takes", async () => {
    const { baseURL, apiKey } = endpoint.openaiOptions();
    const answer = await fetch(`${baseURL}/models`, { headers: { Authorization: `Bearer ${apiKey}` } });
    assert.equal((await answer.json()).data[0].id, "tiny");
  });

  it("a key that is refused, of the wrong kind, or of another workload says so", async () => {
    const data = new DataClient({ baseUrl: server.url, project: "acme" });
    const rows = [
      [{ slug: "chat", apiKey: `ik_live_00000000_${"0".repeat(64)}` }, "AuthError"],
      [{ slug: "chat", apiKey: server.admin }, "PermissionDeniedError"],
      [{ slug: "other", apiKey: key }, "PermissionDeniedError"],
    ];
    for (const [{ slug, apiKey }, name] of rows) {
      const bad = data.endpoint(slug, { apiKey });
      await assert.rejects(bad.generateText({ prompt: "x" }), { name });
      await assert.rejects(all(bad.generateTextStream({ prompt: "x" })), { name });
    }
  });

  it("the workload's own refusal is told apart from the server's", async () => {
    const error = await endpoint.generateText({ messages: "nonsense" }).catch((thrown) => thrown);
    assert.equal(error.name, "BackendError", error.stack);
    assert.equal(error.status, 400);
  });

  it("takes its settings from the environment", async () => {
    Object.assign(process.env, { INFERENCEKEY_BASE_URL: server.url, INFERENCEKEY_PROJECT: "acme", INFERENCEKEY_API_KEY: key });
    try {
      assert.match((await DataClient.fromEnv().endpoint("chat").generateText({ prompt: "env" })).text, /env/);
    } finally {
      for (const name of ["BASE_URL", "PROJECT", "API_KEY"]) delete process.env[`INFERENCEKEY_${name}`];
    }
  });
});

describe("against a backend that misbehaves", () => {
  const REPLICA = { "X-Holdfast-Replica": "chat-1" };
  const chunk = (text) => `data: ${JSON.stringify({ choices: [{ delta: { content: text } }] })}\n\n`;

  async function against(scripts, test, more = {}) {
    const server = await scripted(...scripts);
    try {
      const data = new DataClient({ baseUrl: server.url, project: "acme", apiKey: "ik_live_x", ...more });
      await test(data.endpoint("chat"), server);
    } finally {
      await server.close();
    }
  }

  it("a stream that breaks off never looks complete", () => against([events([chunk("a"), chunk("b")])], async (endpoint) => {
    const seen = [];
    await assert.rejects(async () => {
      for await (const piece of endpoint.generateTextStream({ prompt: "x" })) seen.push(piece.text);
    }, { name: "UnavailableError", message: /broke off/ });
    assert.deepEqual(seen, ["a", "b"]);
  }));

  it("a stream whose connection is cut throws", () => against([(request, response) => {
    events([chunk("a")], { end: false })(request, response);
    setTimeout(() => request.socket.destroy(), 50);
  }], async (endpoint, server) => {
    await assert.rejects(all(endpoint.generateTextStream({ prompt: "x" })), holdfast.UnavailableError);
    assert.equal(server.requests.length, 1);
  }));

  it("a stream that falls silent, or takes too long, throws", async () => {
    await against([events([chunk("a")], { end: false })], async (endpoint) => {
      await assert.rejects(all(endpoint.generateTextStream({ prompt: "x" })), /fell silent/);
    }, { idleMs: 100 });
    await against([(_, response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      const timer = setInterval(() => response.write(chunk("a")), 20);
      response.on("close", () => clearInterval(timer));
    }], async (endpoint) => {
      await assert.rejects(all(endpoint.generateTextStream({ prompt: "x" }, { timeoutMs: 200 })), holdfast.DeadlineError);
    });
  });

  for (const [what, text] of [
    ["an error event", 'event: error\ndata: {"error":{"message":"out of memory"}}\n\n'],
    ["an error in a chunk", 'data: {"error":{"message":"out of memory"}}\n\n'],
    ["a chunk that is no JSON", "data: out of memory\n\n"],
  ]) {
    it(`a stream with ${what} throws what it says`, () => against([events([chunk("a"), text])], async (endpoint) => {
      await assert.rejects(all(endpoint.generateTextStream({ prompt: "x" })), { name: "BackendError", message: /out of memory/ });
    }));
  }

  it("an error is quoted in each of the shapes that backends have", async () => {
    for (const body of [{ error: { message: "too long", type: "x" } }, { error: "too long" }, { detail: "too long" },
      { detail: [{ loc: ["body"], msg: "too long" }] }, { message: "too long", object: "error" }]) {
      await against([json(400, body, REPLICA)], async (endpoint) => {
        await assert.rejects(endpoint.generateText({ prompt: "x" }), { name: "BackendError", message: /too long/, status: 400 });
      });
    }
  });

  it("a reply is not asked for twice once it was begun", () => against([cut], async (endpoint, server) => {
    await assert.rejects(endpoint.generateText({ prompt: "x" }), holdfast.UnavailableError);
    assert.equal(server.requests.length, 1);
  }));

  it("a reply that was not begun is asked for again", () => against(
    [json(503, { error: { message: "busy", code: "unavailable" } }, { "Retry-After": "0" }), json(200, { choices: [{ message: { content: "hi" } }] })],
    async (endpoint) => assert.equal((await endpoint.generateText({ prompt: "x" })).text, "hi"),
  ));

  it("an answer of another shape is an error and no empty text", () => against([json(200, { ok: true })], async (endpoint) => {
    await assert.rejects(endpoint.generateText({ prompt: "x" }), { name: "BackendError", code: "unreadable" });
    await assert.rejects(endpoint.embed("x"), { name: "BackendError", code: "unreadable" });
    await assert.rejects(endpoint.rerank({ query: "x", documents: ["y"] }), { name: "BackendError", code: "unreadable" });
  }));

  it("a hanging one is left when the time is over", () => against([hang], async (endpoint) => {
    await assert.rejects(endpoint.embed("x", { timeoutMs: 100 }), holdfast.DeadlineError);
  }));

  it("parameters go along under OpenAI's names", () => against([json(200, { choices: [{}] })], async (endpoint, server) => {
    await endpoint.generateText({ prompt: "x", maxTokens: 5, topP: 0.5, logit_bias: { 1: 2 }, seed: undefined });
    assert.deepEqual(JSON.parse(server.requests[0].body), {
      model: "chat", messages: [{ role: "user", content: "x" }], max_tokens: 5, top_p: 0.5, logit_bias: { 1: 2 },
    });
    await assert.rejects(endpoint.generateText({ prompt: "x", maxTokens: 5, max_tokens: 6 }), /given twice/);
    await assert.rejects(endpoint.generateText({}), /messages/);
    await assert.rejects(endpoint.generateText({ prompt: "x", messages: [] }), /messages/);
  }));
});

it("a data client says at once what is missing, and shows no key when it is printed", async () => {
  const { inspect } = await import("node:util");
  const baseUrl = "http://127.0.0.1:1";
  assert.throws(() => new DataClient({ baseUrl }), /HOLDFAST_PROJECT/);
  assert.throws(() => new DataClient({ baseUrl: "nonsense", project: "acme" }), holdfast.ConfigurationError);
  const data = new DataClient({ baseUrl, project: "acme" });
  assert.throws(() => data.endpoint("chat"), /HOLDFAST_API_KEY/);
  assert.throws(() => data.endpoint("Chat Bot", { apiKey: "k" }), holdfast.ValidationError);
  const keyed = new DataClient({ baseUrl, project: "acme", apiKey: "ik_live_secret" });
  assert.ok(!inspect([keyed, keyed.endpoint("chat")], { depth: 9, showHidden: true }).includes("secret"));
});
