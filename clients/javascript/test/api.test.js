/** The low-level client: errors, deadlines, retries, and streams that are cut and resumed. */

import assert from "node:assert/strict";
import { createServer as createSocketServer } from "node:net";
import { after, before, describe, it } from "node:test";
import * as holdfast from "../src/index.js";
import { ApiClient, path } from "../src/index.js";
import { cut, events, hang, json, scripted, trickle } from "./support/scripted.js";
import { echoSpec, startServer } from "./support/server.js";

const UNAVAILABLE = json(503, { error: "unavailable", message: "Not now." });
const AT_ONCE = { "Retry-After": "0" };
const TURNED_AWAY = [
  json(503, { error: "unavailable", message: "Not now." }, AT_ONCE),
  json(429, { error: "rate_limited", message: "" }, AT_ONCE),
];
const UNKNOWN = "The request was sent, so whether it took effect is unknown.";
const LOST = json(504, { error: "outcome_unknown", message: `Away. ${UNKNOWN} Look again.` }, AT_ONCE);
const CONFLICT = json(409, { error: "conflict", message: "Other. Nothing was changed. Look." });
const thrownBy = (call) => call.then(() => assert.fail("nothing was thrown"), (error) => error);

/** Take so many events of an iterator, and end it. */
async function take(count, iterator) {
  const found = [];
  for await (const each of iterator) {
    found.push(each);
    if (found.length === count) break;
  }
  return found;
}

/** Run a test against a scripted server and end it, also when the test fails. */
async function against(scripts, test, options = {}) {
  const server = await scripted(...scripts);
  try {
    await test(new ApiClient({ baseUrl: server.url, ...options }), server);
  } finally {
    await server.close();
  }
}

describe("against a real server", () => {
  let server, api;
  before(async () => {
    server = await startServer();
    api = new ApiClient({ baseUrl: server.url, token: server.admin });
  });
  after(() => server.close());

  it("reads, writes and deletes", async () => {
    const spec = { name: "Low", model: "m", backend: "echo", replicas: 0 };
    const ensured = await api.send("POST", "/api/projects/acme/ensure", { spec });
    assert.equal(ensured.outcome, "created");
    const listed = await api.get("/api/projects/acme/workloads", { query: { limit: 10, after: "" } });
    assert.deepEqual(listed.workloads.map((each) => each.slug), ["low"]);
    assert.equal(await api.send("DELETE", `/api/workloads/${ensured.workload.id}`), undefined);
    assert.deepEqual((await api.get("/api/projects/acme/workloads")).workloads, []);
  });

  it("names each refusal by its class, its code and the server's request id", async () => {
    const nobody = new ApiClient({ baseUrl: server.url, token: `ik_sdk_00000000_${"0".repeat(64)}` });
    const reader = new ApiClient({
      baseUrl: server.url,
      token: await server.make({ name: "reader", scopes: ["read"] }),
    });
    const rows = [
      [() => nobody.get("/api/projects/acme/workloads"), "AuthError", "unauthenticated", 401],
      [() => reader.send("POST", "/api/projects/acme/ensure", { spec: {} }),
        "PermissionDeniedError", "scope_insufficient", 403],
      [() => reader.get("/api/projects/other/workloads"),
        "PermissionDeniedError", "project_scope_mismatch", 403],
      [() => api.get("/api/projects/acme/workloads/none"), "NotFoundError", "not_found", 404],
      [() => api.get("/api/nothing"), "NotFoundError", "no_such_route", 404],
      [() => api.send("POST", "/api/projects/acme/ensure", { spec: { name: "x" } }),
        "ValidationError", "invalid", 400],
      [() => api.send("POST", "/api/projects/acme/ensure", { nonsense: 1 }),
        "ValidationError", undefined, 400],
    ];
    for (const [call, name, code, status] of rows) {
      const error = await call().then(() => assert.fail(`${name} was not thrown`), (thrown) => thrown);
      assert.equal(error.name, name, error.stack);
      assert.ok(error instanceof Reflect.get(holdfast, name) && error instanceof holdfast.HoldfastError);
      assert.equal(error.status, status);
      if (code) assert.equal(error.code, code);
      assert.ok(error.requestId, `${name} has no request id`);
      assert.ok(!error.message.includes("0".repeat(64)));
    }
  });

  it("lists every problem of a spec that is refused", async () => {
    const error = await api.send("POST", "/api/projects/acme/ensure", { spec: { name: "x" } })
      .catch((thrown) => thrown);
    const fields = error.problems.map((each) => each.field).sort();
    assert.deepEqual(fields, ["backend", "model"]);
    assert.match(error.message, /backend/);
  });

  it("follows changes, and takes the stream up again when the server was restarted", async () => {
    const stream = api.events("/api/projects/acme/events");
    const seen = [];
    const listening = (async () => {
      for await (const each of stream) {
        seen.push(each.event === "message" ? each.data.slug : each.event);
        if (each.event === "message" && each.data.slug === "after") return;
      }
    })();
    const spec = (name) => ({ spec: { name, model: "m", backend: "echo", replicas: 0 } });
    await new Promise((resolve) => setTimeout(resolve, 300));
    await api.send("POST", "/api/projects/acme/ensure", spec("before"));
    while (!seen.includes("before")) await new Promise((resolve) => setTimeout(resolve, 20));
    await server.restart("SIGKILL");
    while (!seen.includes("back")) await new Promise((resolve) => setTimeout(resolve, 20));
    await api.send("POST", "/api/projects/acme/ensure", spec("after"));
    await listening;
    // A server that numbers its events says `reset` to whom it cannot give what they missed.
    const told = [...new Set(seen)].filter((each) => each !== "reset");
    assert.deepEqual(told, ["before", "lost", "back", "after"]);
  });

  it("ends a stream whose token is revoked with an AuthError", async () => {
    const made = await api.send("POST", "/api/projects/acme/tokens", { name: "gone", scopes: ["read"] });
    const gone = new ApiClient({ baseUrl: server.url, token: made.token });
    const seen = [];
    const listening = (async () => {
      for await (const each of gone.events("/api/projects/acme/events")) seen.push(each.event);
    })();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await api.send("DELETE", `/api/projects/acme/tokens/${made.id}`);
    await assert.rejects(listening, holdfast.AuthError);
    assert.deepEqual(seen.slice(-1), ["lost"]);
  });

  it("reads log lines", async () => {
    const { workload } = await api.send("POST", "/api/projects/acme/ensure", { spec: echoSpec("Logs") });
    for await (const each of api.events(`/api/projects/acme/workloads/${workload.slug}/readiness-events`)) {
      assert.notEqual(each.data?.phase, "error");
      if (each.data?.phase === "ready") break;
    }
    const lines = [];
    for await (const line of api.lines(path`/api/projects/acme/workloads/${workload.slug}/logs`, {
      query: { tail: 10 },
    })) lines.push(line);
    assert.ok(lines.length > 0);
    await api.send("DELETE", `/api/workloads/${workload.id}`);
  });
});

describe("deadlines", () => {
  const started = [
    ["a server that never answers", hang],
    ["an answer that never ends", trickle],
    ["a server that always asks to come again", json(503, { error: "unavailable", message: "" }, { "Retry-After": "0" })],
  ];
  for (const [name, script] of started) {
    it(`cover ${name}`, () => against([script], async (api) => {
      const began = performance.now();
      const error = await api.get("/x", { timeoutMs: 300 }).catch((thrown) => thrown);
      assert.ok(performance.now() - began < 1500);
      assert.ok(error instanceof holdfast.UnavailableError, error.stack);
      assert.equal(error.outcomeUnknown, false);
    }, { retries: 1000 }));
  }

  it("cover a connection that is accepted by nobody", async () => {
    const server = createSocketServer({ pauseOnConnect: true }, () => {});
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      const api = new ApiClient({ baseUrl: `http://127.0.0.1:${server.address().port}` });
      await assert.rejects(api.get("/x", { timeoutMs: 200 }), holdfast.DeadlineError);
    } finally {
      server.close();
    }
  });

  it("say of a write that its outcome is unknown", () => against([hang], async (api) => {
    const error = await api.send("POST", "/x", {}, { timeoutMs: 200 }).catch((thrown) => thrown);
    assert.ok(error instanceof holdfast.DeadlineError);
    assert.equal(error.outcomeUnknown, true);
    assert.match(error.message, /whether it took effect is unknown/);
    assert.doesNotMatch(error.message, /Nothing was changed/);
  }));

  it("leave no timer behind that keeps the process alive", () => against([json(200, {})], async (api) => {
    const before = process.getActiveResourcesInfo().filter((each) => each === "Timeout").length;
    await api.get("/x", { timeoutMs: 60_000 });
    const left = process.getActiveResourcesInfo().filter((each) => each === "Timeout").length;
    assert.ok(left <= before, `${left} timers, ${before} before`);
  }));

  for (const timeoutMs of [0, -1, NaN, "soon"]) {
    it(`refuse ${timeoutMs}`, () => against([json(200, {})], async (api, server) => {
      await assert.rejects(api.get("/x", { timeoutMs }), holdfast.ValidationError);
      assert.equal(server.requests.length, 0);
    }));
  }

  it("may be as long as one likes", () => against([json(200, { a: 1 })], async (api) => {
    assert.deepEqual(await api.get("/x", { timeoutMs: Infinity }), { a: 1 });
    assert.deepEqual(await api.get("/x", { timeoutMs: 2 ** 40 }), { a: 1 });
  }));
});

describe("a signal", () => {
  it("ends a call with its own reason", () => against([hang], async (api) => {
    const controller = new AbortController();
    const call = api.get("/x", { signal: controller.signal });
    setTimeout(() => controller.abort(new Error("enough")), 50);
    await assert.rejects(call, /enough/);
  }));

  it("that was given before sends nothing", () => against([json(200, {})], async (api, server) => {
    await assert.rejects(api.get("/x", { signal: AbortSignal.abort() }), { name: "AbortError" });
    assert.equal(server.requests.length, 0);
  }));

  it("ends a stream, also between two tries", () => against([UNAVAILABLE], async (api) => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    await assert.rejects(async () => {
      for await (const each of api.events("/x", { signal: controller.signal })) {
        assert.equal(each.event, "lost");
      }
    }, { name: "AbortError" });
  }, { retries: 0 }));
});

describe("retries", () => {
  const ok = json(200, { done: true });

  it("repeat a read after a cut and after 503", () =>
    against([cut, UNAVAILABLE, ok], async (api, server) => {
      assert.deepEqual(await api.get("/x"), { done: true });
      assert.equal(server.requests.length, 3);
    }));

  it("repeat a write under a key, with the same key and body", () =>
    against([cut, json(500, { error: "internal", message: "" }), ok], async (api, server) => {
      await api.send("POST", "/x", { a: 1 }, { idempotencyKey: "k" });
      assert.deepEqual(server.requests.map((each) => [each.headers["idempotency-key"], each.body]),
        Array(3).fill(["k", '{"a":1}']));
    }));

  it("leave a write without a key alone once it was sent", () =>
    against([cut, ok], async (api, server) => {
      const error = await api.send("POST", "/x", {}).catch((thrown) => thrown);
      assert.equal(error.outcomeUnknown, true, error.stack);
      assert.equal(server.requests.length, 1);
    }));

  it("leave a write without a key alone that failed inside the server", () =>
    against([json(500, { error: "internal", message: "Failed." }), ok], async (api, server) => {
      const error = await api.send("POST", "/x", {}).catch((thrown) => thrown);
      assert.equal(error.outcomeUnknown, true);
      assert.equal(server.requests.length, 1);
    }));

  it("repeat a write without a key that surely was not begun", () =>
    against([...TURNED_AWAY, ok],
      async (api, server) => {
        assert.deepEqual(await api.send("POST", "/x", {}), { done: true });
        assert.equal(server.requests.length, 3);
      }));

  const open = [
    ["whose outcome the server does not know", LOST],
    ["that a gateway answered when the server broke off", (_, response) => {
      response.writeHead(503, { "Content-Type": "text/plain" });
      response.end("upstream reset before headers");
    }],
    ["that is away and names no time", json(503, { error: "unavailable", message: `Away. ${UNKNOWN}` })],
  ];
  for (const [name, script] of open) {
    it(`leave a write without a key alone ${name}`, () => against([script, CONFLICT], async (api, server) => {
      const error = await thrownBy(api.send("POST", "/x", {}));
      assert.equal(server.requests.length, 1);
      assert.ok(error instanceof holdfast.UnavailableError, error.stack);
      assert.equal(error.outcomeUnknown, true);
      assert.equal(error.message.split("effect is unknown").length, 2, error.message);
    }));
  }

  for (const [name, script] of [["got no answer", cut], ["had an unknown outcome", LOST]]) {
    it(`do not say that nothing was changed when an earlier try ${name}`, () =>
      against([script, CONFLICT], async (api, server) => {
        const error = await thrownBy(api.send("POST", "/x", {}, { idempotencyKey: "k" }));
        assert.equal(server.requests.length, 2);
        assert.ok(error instanceof holdfast.ConflictError, error.stack);
        assert.equal(error.outcomeUnknown, true);
        assert.doesNotMatch(error.message, /Nothing was changed/);
      }));
  }

  for (const script of TURNED_AWAY) {
    it("send a write of a page once, whatever the answer", () => against([script, ok], async (api, server) => {
      const error = await thrownBy(api.send("POST", "/x", {}));
      assert.equal(server.requests.length, 1);
      assert.equal(error.outcomeUnknown, false);
      assert.deepEqual(await api.get("/x"), { done: true });
    }, { session: true }));
  }

  it("send a write of a page once where nobody listens", async () => {
    let asked = 0;
    const fetch = async () => {
      asked++;
      throw Object.assign(new TypeError("fetch failed"), { cause: { code: "ECONNREFUSED" } });
    };
    const api = new ApiClient({ baseUrl: "http://127.0.0.1:9", session: true, fetch });
    await thrownBy(api.send("POST", "/x", {}));
    assert.equal(asked, 1);
  });

  it("give up at last, with what the server said", () => against([UNAVAILABLE], async (api, server) => {
    const error = await api.get("/x").catch((thrown) => thrown);
    assert.equal(error.message, "Not now.");
    assert.equal(server.requests.length, 3);
  }, { retries: 2 }));

  it("wait as long as the server asks, and not at all when that is longer than the call", () =>
    against([json(429, { error: "rate_limited", message: "Slow." }, { "Retry-After": "7" })],
      async (api, server) => {
        const error = await api.get("/x", { timeoutMs: 1000 }).catch((thrown) => thrown);
        assert.ok(error instanceof holdfast.RateLimitError);
        assert.equal(error.retryAfter, 7);
        assert.equal(server.requests.length, 1);
      }));

  it("say that a server which is not there was not asked", async () => {
    const gone = await scripted(hang);
    await gone.close();
    const api = new ApiClient({ baseUrl: gone.url, retries: 1 });
    const error = await api.send("POST", "/x", {}).catch((thrown) => thrown);
    assert.ok(error instanceof holdfast.UnavailableError);
    assert.equal(error.outcomeUnknown, false);
    assert.match(error.message, /ECONNREFUSED.*Nothing was changed/);
  });
});

describe("answers that are none", () => {
  const page = (status, type = "text/html") => (_, response) => {
    response.writeHead(status, { "Content-Type": type });
    response.end("<h1>Login</h1>");
  };

  it("of a proxy are no success", () => against([page(200)], async (api) => {
    await assert.rejects(api.get("/x"), { name: "ApiError", code: "unreadable", outcomeUnknown: false });
    await assert.rejects(api.send("POST", "/x", {}), { name: "ApiError", code: "unreadable", outcomeUnknown: true });
  }));

  it("are no success either where only the type is right", () => against([page(200, "application/json")], async (api) => {
    await assert.rejects(api.get("/x"), { name: "ApiError", code: "unreadable", outcomeUnknown: false });
  }));

  it("of a proxy are no word on whether something is there", () => against([page(404)], async (api) => {
    await assert.rejects(api.get("/x"), { name: "ApiError", status: 404 });
  }));

  it("that are cut short are no success", () => against([(_, response) => {
    response.writeHead(200, { "Content-Type": "application/json", "Content-Length": "100" });
    response.write('{"a":1}');
    setTimeout(() => response.destroy(), 20);
  }], async (api) => {
    await assert.rejects(api.get("/x"), { name: "UnavailableError" });
  }, { retries: 1 }));

  it("lead nowhere: the token is not carried elsewhere", async () => {
    const elsewhere = await scripted(json(200, {}));
    await against([(_, response) => {
      response.writeHead(302, { Location: elsewhere.url });
      response.end();
    }], async (api) => {
      await assert.rejects(api.get("/x"), /Redirects are not followed/);
    }, { token: "ik_sdk_1_2" });
    assert.equal(elsewhere.requests.length, 0);
    await elsewhere.close();
  });

  it("show no whole token, whatever the server says", () =>
    against([json(400, { error: "invalid", message: `no ik_sdk_12345678_${"a".repeat(64)}\u001b[31m` })],
      async (api) => {
        const error = await api.get("/x").catch((thrown) => thrown);
        assert.equal(error.message, "no ik_sdk_12345678… [31m");
      }));
});

describe("streams", () => {
  const say = (id, data, event) => `${event ? `event: ${event}\n` : ""}id: ${id}\ndata: ${JSON.stringify(data)}\n\n`;

  // As the server begins each stream: with the id of what is known, and nothing to tell.
  const listening = (id) => `: listening\nid: ${id}\n\n`;

  it("resume where the server said they begin, when they are cut before the first event", () => against([
    events([listening(6)]),
    events([listening(6), say(7, { a: 1 })], { end: false }),
  ], async (api, server) => {
    const found = await take(5, api.events("/x", { open: true }));
    assert.deepEqual(found.map((each) => each.event), ["open", "lost", "back", "open", "message"]);
    assert.deepEqual(server.requests.map((each) => each.headers["last-event-id"]), [undefined, "6"]);
  }));

  it("yield no event for an id alone", () => against([
    events(["id: 1\n\n", "event: ping\nid: 2\n\n", say(3, "x")]),
  ], async (api) => {
    assert.deepEqual(await take(1, api.stream("GET", "/x")), [{ id: "3", event: "message", data: "x" }]);
  }));

  it("resume behind the last id, and mark the cut", () => against([
    events([listening(5), say(7, { a: 1 }, "drift"), say(8, { a: 2 }), "data: half"]),
    events([listening(8), say(9, { a: 3 })], { end: false }),
  ], async (api, server) => {
    const found = await take(5, api.events("/x", { after: 5 }));
    assert.deepEqual(found.map(({ error, ...rest }) => rest), [
      { id: "7", event: "drift", data: { a: 1 } },
      { id: "8", event: "message", data: { a: 2 } },
      { event: "lost" },
      { event: "back" },
      { id: "9", event: "message", data: { a: 3 } },
    ]);
    assert.deepEqual(server.requests.map((each) => each.headers["last-event-id"]), ["5", "8"]);
  }));

  it("start anew after a reset", () => against([
    events([say(7, 1), "event: reset\ndata: {}\n\n"]),
    events([say(1, 2)], { end: false }),
  ], async (api, server) => {
    const found = await take(5, api.events("/x"));
    assert.deepEqual(found.map((each) => each.event), ["message", "reset", "lost", "back", "message"]);
    assert.equal(server.requests[1].headers["last-event-id"], undefined);
  }));

  it("that fall silent count as lost", () => against([
    events([say(1, 1)], { end: false }),
    events([say(2, 2)], { end: false }),
  ], async (api) => {
    const found = await take(4, api.events("/x", { idleMs: 1000 }));
    assert.deepEqual(found.map((each) => each.event), ["message", "lost", "back", "message"]);
    assert.match(found[1].error.message, /fell silent/);
  }));

  it("that get no answer at all count as lost", () => against([
    hang, events([say(1, 1)], { end: false }),
  ], async (api) => {
    const found = await take(3, api.events("/x", { idleMs: 1000 }));
    assert.deepEqual(found.map((each) => each.event), ["lost", "back", "message"]);
  }));

  it("do not count the time of a slow listener as silence", () => against([
    events([say(1, 1), say(2, 2)], { end: false }),
  ], async (api) => {
    const seen = [];
    for await (const each of api.events("/x", { idleMs: 1000 })) {
      seen.push(each.event);
      if (seen.length === 2) break;
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
    assert.deepEqual(seen, ["message", "message"]);
  }));

  it("wait longer from try to try, and mark one cut once", () => against([
    cut, UNAVAILABLE, cut, events([say(1, 1)], { end: false }),
  ], async (api, server) => {
    const began = performance.now();
    const found = await take(3, api.events("/x"));
    assert.deepEqual(found.map((each) => each.event), ["lost", "back", "message"]);
    assert.equal(server.requests.length, 4);
    assert.ok(performance.now() - began > (1000 + 2000 + 4000) / 2);
  }, { retries: 0 }));

  it("do not come back to what refuses them", () =>
    against([json(403, { error: "scope_insufficient", message: "No." })], async (api, server) => {
      await assert.rejects(take(1, api.events("/x")), holdfast.PermissionDeniedError);
      assert.equal(server.requests.length, 1);
    }));

  it("close their connection when the listener leaves", async () => {
    let closed;
    const left = new Promise((resolve) => { closed = resolve; });
    await against([(request, response) => {
      events([say(1, 1)], { end: false })(request, response);
      response.on("close", closed);
    }], async (api) => {
      await take(1, api.events("/x"));
      await left;
    });
  });

  it("keep texts whole that are cut inside a character, and read CRLF", () => against([(_, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const bytes = Buffer.from('id: 1\r\ndata: {"a":\r\ndata: "ü"}\r\n\r\n');
    const at = bytes.indexOf(0xc3) + 1;
    response.write(bytes.subarray(0, at));
    setTimeout(() => response.end(bytes.subarray(at)), 30);
  }], async (api) => {
    assert.deepEqual(await take(1, api.stream("GET", "/x")), [{ id: "1", event: "message", data: { a: "ü" } }]);
  }));
});

describe("sessions", () => {
  it("guard every write by a header, and send no token", () =>
    against([json(200, {})], async (api, server) => {
      await api.get("/x");
      await api.send("POST", "/x", {});
      assert.deepEqual(server.requests.map((each) => each.headers["holdfast-csrf"]), [undefined, "1"]);
      assert.ok(server.requests.every((each) => !each.headers.authorization));
    }, { session: true }));

  it("are of this origin only; a token sends no cookie", async () => {
    const seen = [];
    const fake = async (_, init) => {
      seen.push(init.credentials);
      return Response.json({});
    };
    const baseUrl = "https://holdfast.example";
    await new ApiClient({ baseUrl, session: true, fetch: fake }).get("/x");
    await new ApiClient({ baseUrl, token: "t", fetch: fake }).get("/x");
    assert.deepEqual(seen, ["same-origin", "omit"]);
  });

  it("and tokens exclude each other", () => {
    assert.throws(() => new ApiClient({ baseUrl: "http://localhost", session: true, token: "t" }),
      holdfast.ConfigurationError);
  });
});

describe("addresses", () => {
  it("of paths have their parts encoded, and lead nowhere else", async () => {
    assert.equal(path`/a/${"b/c?d"}/${1}`, "/a/b%2Fc%3Fd/1");
    await against([json(200, {})], async (api, server) => {
      for (const bad of ["x", "//evil.example/x", "/\\evil.example", "https://evil.example", "/a//b",
        ...["", ".", ".."].flatMap((part) => [path`/a/${part}`, path`/a/${part}/b`])]) {
        await assert.rejects(api.get(bad), holdfast.ValidationError, bad);
      }
      assert.equal(server.requests.length, 0);
      await api.get("/a/...b/..c?q=/../x");
      assert.equal(server.requests[0].url, "/a/...b/..c?q=/../x");
    });
  });

  for (const bad of ["", "localhost", "ftp://x", "https://u:p@x", "https://x?y=1", "https://x#y", "http://"]) {
    it(`refuse ${JSON.stringify(bad)}`, () => {
      assert.throws(() => new ApiClient({ baseUrl: bad }), holdfast.ConfigurationError);
    });
  }

  it("take no token in clear over a network, unless told", () => {
    const remote = { baseUrl: "http://holdfast.example", token: "t" };
    assert.throws(() => new ApiClient(remote), /in clear/);
    assert.equal(new ApiClient({ ...remote, allowInsecure: true }).baseUrl, "http://holdfast.example");
    for (const host of ["localhost", "127.0.0.1", "[::1]"]) new ApiClient({ baseUrl: `http://${host}:8400`, token: "t" });
    assert.throws(() => new ApiClient({ baseUrl: "http://127.0.0.1.evil.example", token: "t" }), /in clear/);
  });

  it("keep a path in front, without its last slash", () => {
    assert.equal(new ApiClient({ baseUrl: "https://x.example/holdfast/" }).baseUrl, "https://x.example/holdfast");
  });
});

it("a client shows no token when it is printed", async () => {
  const { inspect } = await import("node:util");
  const api = new ApiClient({ baseUrl: "http://localhost", token: "ik_sdk_secret" });
  assert.ok(!inspect(api, { depth: 9, showHidden: true }).includes("secret"));
  assert.ok(!JSON.stringify(api).includes("secret"));
});

it("an option that is not known is an error", () => {
  assert.throws(() => new ApiClient({ baseURL: "http://localhost" }), /baseURL: no such option/);
});
