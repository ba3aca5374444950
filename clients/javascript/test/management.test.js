/** The management client against a real control plane. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, it } from "node:test";
import * as holdfast from "../src/index.js";
import { ManagementClient, OnAbsent, OnDrift } from "../src/index.js";
import { FIELDS, specToWire } from "../src/spec.js";
import { cut, hang, json, scripted } from "./support/scripted.js";
import { echoSpec, PYTHON, REPOSITORY, startServer } from "./support/server.js";

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let server, mgmt;
const warnings = [];
before(async () => {
  server = await startServer();
  mgmt = client({ onWarning: (text) => warnings.push(text) });
});
after(() => server.close());

function client(more = {}) {
  return new ManagementClient({
    baseUrl: server.url, project: "acme", sdkToken: server.admin, ...more,
  });
}

/** A workload without replicas: a declaration is all that most tests need. */
const idle = (name, more = {}) => ({ name, model: "m", backend: "echo", replicas: 0, ...more });

async function all(iterator) {
  const found = [];
  for await (const each of iterator) found.push(each);
  return found;
}

/** Bring a workload into a situation and return its spec. */
async function situation(kind, name) {
  const spec = idle(name, { description: "as declared" });
  if (kind === "absent") return spec;
  const { workload } = await mgmt.ensure(spec);
  if (kind === "drifted") await server.edit(workload.uid, { description: "by hand" });
  return spec;
}

describe("ensure keeps every row of the matrix, with the policy in the call and in the spec", () => {
  // What was found, the policy, then the outcome or the error, and what is described afterwards.
  const ROWS = [
    ["drifted", { onDrift: "reconcile" }, "updated", "as declared"],
    ["drifted", { onDrift: "fail" }, "DriftError", "by hand"],
    ["drifted", { onDrift: "dry_run" }, "planned", "by hand"],
    ["drifted", { onDrift: "warn" }, "left", "by hand"],
    ["drifted", { onDrift: "ignore" }, "left", "by hand"],
    ["drifted", {}, "updated", "as declared"],
    ...Object.values(OnDrift).map((onDrift) => ["in-sync", { onDrift }, "unchanged", "as declared"]),
    ...Object.values(OnDrift).flatMap((onDrift) => [
      ["absent", { onDrift }, "created", "as declared"],
      ["absent", { onDrift, onAbsent: "create" }, "created", "as declared"],
      ["absent", { onDrift, onAbsent: "plan" }, "planned", undefined],
      ["absent", { onDrift, onAbsent: "fail" }, "NotFoundError", undefined],
    ]),
    ["drifted", { onDrift: "reconcile", onAbsent: "fail" }, "updated", "as declared"],
    ["in-sync", { onAbsent: "fail" }, "unchanged", "as declared"],
  ];
  for (const [index, [found, policy, expected, described]] of ROWS.entries()) {
    for (const place of ["call", "spec", "both"]) {
      it(`${found}, ${JSON.stringify(policy)} in the ${place}: ${expected}`, async () => {
        const name = `row-${index}-${place}`;
        const spec = await situation(found, name);
        warnings.length = 0;
        const inSpec = place === "call" ? spec : { ...spec, ...policy };
        const call = mgmt.ensure(inSpec, place === "spec" ? undefined : policy);
        const result = await call.catch((error) => error);
        assert.equal(result.outcome ?? result.name, expected, result.stack);
        const live = await mgmt.get(name).catch((error) => assert.equal(error.name, "NotFoundError"));
        assert.equal(live?.spec.description, described);
        assert.equal(warnings.length, policy.onDrift === "warn" && found === "drifted" ? 1 : 0);
        if (result.outcome) {
          assert.deepEqual([result.projectSlug, result.workloadSlug, result.repeated], ["acme", name, false]);
          assert.equal(result.plan.steps[0].slug, name);
        }
        if (found === "drifted") {
          const { plan } = result;
          assert.equal(plan.steps[0].changes[0].path, "/description");
          assert.equal(plan.steps[0].changes[0].writer.manager, "curl");
        }
      });
    }
  }
});

describe("ensure", () => {
  it("throws a DriftError that is a ValidationError and carries the plan, which can be applied", async () => {
    const spec = await situation("drifted", "failing");
    const error = await mgmt.ensure(spec, { onDrift: OnDrift.Fail }).catch((thrown) => thrown);
    assert.ok(error instanceof holdfast.DriftError && error instanceof holdfast.ValidationError);
    assert.deepEqual([error.code, error.status], ["drift", 409]);
    assert.match(error.message, /description/);
    const [after] = await mgmt.apply(error.plan);
    assert.equal(after.spec.description, "as declared");
  });

  it("says in the warning what moved and who moved it", async () => {
    const spec = await situation("drifted", "warned");
    warnings.length = 0;
    await mgmt.ensure({ ...spec, onDrift: OnDrift.Warn });
    assert.match(warnings[0], /acme\/warned has drifted in description \(by curl\)\. Nothing was changed/);
  });

  it("throws where both places disagree, and sends nothing", async () => {
    const spy = await scripted(json(500, {}));
    const own = client({ baseUrl: spy.url });
    for (const [inSpec, inCall] of [
      [{ onDrift: "fail" }, { onDrift: "reconcile" }],
      [{ onDrift: "reconcile" }, { onDrift: "fail" }],
      [{ onAbsent: "fail" }, { onAbsent: "create" }],
      [{ on_drift: "fail" }, { onDrift: "warn" }],
    ]) {
      await assert.rejects(own.ensure({ ...idle("x"), ...inSpec }, inCall), /Say it in one place/);
    }
    assert.equal(spy.requests.length, 0);
    await spy.close();
  });

  const refused = [
    ["a field that there is not", { ...idle("x"), replicsa: 2 }, undefined, "replicsa"],
    ["a nested field that there is not", idle("x", { resources: { gpus: 1 } }), undefined, "resources.gpus"],
    ["a field of one of several", idle("x", { adapters: [{ name: "a", sauce: "b" }] }), undefined, "adapters.sauce"],
    ["a field under a name", idle("x", { secrets: { A: { nam: "a" } } }), undefined, "secrets.A.nam"],
    ["a field that is given twice", idle("x", { taskType: "a", task_type: "b" }), undefined, "task_type"],
    ["an option that there is not", idle("x"), { onDrfit: "fail" }, "onDrfit"],
    ["a policy that there is not", idle("x"), { onDrift: "heal" }, "onDrift"],
    ["a policy that is null", idle("x", { onDrift: null }), undefined, "onDrift"],
    ["no spec", undefined, undefined, "spec"],
    ["a text for a spec", "chat", undefined, "spec"],
    ["a text for resources", idle("x", { resources: "much" }), undefined, "resources"],
    ["a project that is no slug", idle("x"), { project: "Acme Inc" }, "project"],
  ];
  for (const [what, spec, options, field] of refused) {
    it(`refuses ${what} before anything is sent`, async () => {
      const spy = await scripted(json(500, {}));
      const error = await client({ baseUrl: spy.url }).ensure(spec, options).catch((thrown) => thrown);
      assert.equal(error.name, "ValidationError", error.stack);
      assert.deepEqual(error.problems.map((each) => each.field), [field]);
      assert.ok(error.message.includes("Nothing was sent.") && error.hint);
      assert.equal(spy.requests.length, 0);
      await spy.close();
    });
  }

  it("sends every write under a key of its own, and the same one when it repeats", async () => {
    const answer = await mgmt.api.send("POST", "/api/projects/acme/ensure", { spec: idle("keys") });
    const spy = await scripted(cut, json(200, answer));
    const own = client({ baseUrl: spy.url });
    const result = await own.ensure(idle("keys"));
    assert.equal(result.repeated, true);
    await own.ensure(idle("keys"));
    const keys = spy.requests.map((each) => each.headers["idempotency-key"]);
    assert.equal(keys[0], keys[1]);
    assert.notEqual(keys[1], keys[2]);
    await spy.close();
  });

  it("keeps its deadline, and says that the outcome is unknown", async () => {
    const spy = await scripted(hang);
    const began = performance.now();
    const error = await client({ baseUrl: spy.url }).ensure(idle("x"), { timeoutMs: 200 }).catch((e) => e);
    assert.equal(error.name, "DeadlineError");
    assert.equal(error.outcomeUnknown, true);
    assert.ok(performance.now() - began < 1000);
    await spy.close();
  });

  it("of two at once creates one workload", async () => {
    const outcomes = (await Promise.all(Array.from({ length: 5 }, () => mgmt.ensure(idle("once")))))
      .map((each) => each.outcome).sort();
    assert.deepEqual(outcomes, ["created", ...Array(4).fill("unchanged")]);
  });

  it("takes the project of the call before that of the spec before that of the client", async () => {
    const error = await mgmt.ensure(idle("p", { project: "other" })).catch((thrown) => thrown);
    assert.equal(error.code, "project_scope_mismatch");
    assert.equal((await mgmt.ensure(idle("p", { project: "other" }), { project: "acme" })).projectSlug, "acme");
    await assert.rejects(client({ project: undefined }).ensure(idle("p")), holdfast.ConfigurationError);
    assert.equal((await client({ project: undefined }).ensure(idle("p", { project: "acme" }))).outcome, "unchanged");
  });

  it("is made again from what get() gives", async () => {
    const spec = idle("again", {
      rollout: { maxSurge: 1 }, taskType: "embedding", secrets: { HF_TOKEN: { name: "hf", key: "token" } },
      env: { SOME_name: "1" }, config: { some_Key: { innerKey: 1 } }, vllmVersion: "0.9",
    });
    await mgmt.ensure(spec).catch((error) => assert.fail(error.message));
    const live = await mgmt.get("again");
    for (const [name, value] of Object.entries(spec)) assert.deepEqual(live.spec[name], value, name);
    assert.equal((await mgmt.ensure(live.spec)).outcome, "unchanged");
  });
});

it("the table of fields is that of the server", () => {
  const script = `
import dataclasses, json
from holdfast.core import cluster_parts as c, workload as w
from holdfast.core.lora import LoraAdapter
kinds = {"spec": w.WorkloadSpec, "secrets": w.SecretRef, "metrics": w.ScalingMetric,
         "analysis": w.Analysis, "adapters": LoraAdapter, "claims": c.DeviceClaimSpec,
         "ports": c.ServicePortSpec, **w.NESTED_TYPES}
print(json.dumps({name: sorted(f.name for f in dataclasses.fields(kind)) for name, kind in kinds.items()}))
`;
  const theirs = JSON.parse(execFileSync(PYTHON, ["-c", script], { cwd: REPOSITORY }));
  const { status, ...tables } = FIELDS;
  const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const ours = Object.fromEntries(
    Object.entries(tables).map(([name, fields]) => [name, fields.split(" ").map(snake).sort()]),
  );
  assert.deepEqual(ours, theirs);
});

it("a document as a file has it is taken as it stands", () => {
  const document = { apiVersion: "holdfast.dev/v1", kind: "Workload", name: "a", model: "m", backend: "b",
    task_type: "embedding", canary: { weight: 5, model_revision: "r", resources: { gpu_memory: "1Gi" } } };
  assert.deepEqual(JSON.parse(JSON.stringify(specToWire(document).spec)), document);
});

describe("plan and apply", () => {
  it("plan says what ensure would do, of several, and changes nothing", async () => {
    const drifted = await situation("drifted", "plan-a");
    const plan = await mgmt.plan([drifted, idle("plan-b")]);
    assert.deepEqual(plan.steps.map((each) => [each.slug, each.action]), [["plan-a", "update"], ["plan-b", "create"]]);
    assert.equal((await mgmt.get("plan-a")).spec.description, "by hand");
    await assert.rejects(mgmt.get("plan-b"), holdfast.NotFoundError);
    const after = await mgmt.apply(plan);
    assert.deepEqual(after.map((each) => each.workloadSlug), ["plan-a", "plan-b"]);
    assert.equal((await mgmt.get("plan-a")).spec.description, "as declared");
  });

  it("plan is repeated when its answer was lost, for it changes nothing", async () => {
    const plan = await mgmt.plan(idle("lost"));
    const spy = await scripted(cut, json(200, plan));
    assert.deepEqual(await client({ baseUrl: spy.url }).plan(idle("lost")), plan);
    await spy.close();
  });

  const moves = [
    ["changed", "drifted", (live) => server.edit(live.uid, { description: "again" })],
    ["deleted", "drifted", () => mgmt.delete("stale-deleted")],
    ["created", "absent", () => mgmt.ensure(idle("stale-created"))],
    ["replaced", "drifted", async () => {
      await mgmt.delete("stale-replaced");
      await mgmt.ensure(idle("stale-replaced"));
    }],
  ];
  for (const [moved, from, move] of moves) {
    it(`a plan is stale once the workload was ${moved}, and nothing is written, not even of others`, async () => {
      const spec = await situation(from, `stale-${moved}`);
      const plan = await mgmt.plan([idle(`aaa-${moved}`), spec]);
      await move(from === "absent" ? undefined : await mgmt.get(`stale-${moved}`));
      const error = await mgmt.apply(plan).catch((thrown) => thrown);
      assert.ok(error instanceof holdfast.StalePlanError && error instanceof holdfast.ConflictError);
      assert.match(error.message, new RegExp(`was ${moved} meanwhile.*Nothing was changed`));
      await assert.rejects(mgmt.get(`aaa-${moved}`), holdfast.NotFoundError);
    });
  }

  it("apply says how far it came when a later step fails", async () => {
    const plan = await mgmt.plan([idle("far-a"), idle("far-b")]);
    plan.steps[1].write.replicas = -1;
    const error = await mgmt.apply(plan).catch((thrown) => thrown);
    assert.match(error.message, /1 of 2 changes were made before that/);
    assert.doesNotMatch(error.message, /Nothing was changed/);
    assert.equal((await mgmt.get("far-a")).workloadSlug, "far-a");
  });

  it("apply refuses what is no plan", async () => {
    for (const bad of [undefined, {}, []]) await assert.rejects(mgmt.apply(bad), holdfast.ValidationError);
  });

  it("apply keeps one deadline over all of its steps", async () => {
    const plan = await mgmt.plan([idle("late-a"), idle("late-b")]);
    const absent = (_, response) => setTimeout(() => json(404, { error: "not_found", message: "" })(_, response), 150);
    const spy = await scripted(absent);
    await assert.rejects(client({ baseUrl: spy.url }).apply(plan, { timeoutMs: 200 }), /in 0.2 s/);
    await spy.close();
  });
});

describe("get, list and delete", () => {
  it("delete is true once and false from then on", async () => {
    await mgmt.ensure(idle("short"));
    assert.equal(await mgmt.delete("short"), true);
    assert.equal(await mgmt.delete("short"), false);
    await assert.rejects(mgmt.get("short"), { name: "NotFoundError", code: "not_found" });
  });

  it("delete does not take another server's 404 for an answer", async () => {
    const spy = await scripted((_, response) => response.writeHead(404).end("no such page"));
    await assert.rejects(client({ baseUrl: spy.url }).delete("x"), holdfast.ApiError);
    await spy.close();
  });

  it("delete does not take a name for a slug, and say that it is gone", async () => {
    await assert.rejects(mgmt.delete("Support Bot"), holdfast.ValidationError);
    await assert.rejects(mgmt.delete("../tokens"), holdfast.ValidationError);
  });

  it("delete looks again when another writer was first", async () => {
    await mgmt.ensure(idle("raced"));
    const live = await mgmt.api.get("/api/projects/acme/workloads/raced");
    let raced = false;
    const own = client({ fetch: async (url, init) => {
      if (init.method === "POST" && !raced) {
        raced = true;
        await server.edit(live.id, { description: "in between" });
      }
      return fetch(url, init);
    } });
    assert.equal(await own.delete("raced"), true);
    await assert.rejects(mgmt.get("raced"), holdfast.NotFoundError);
  });

  it("list gives every workload by slug, over the pages", async () => {
    for (const each of ["page-a", "page-b", "page-c"]) await mgmt.ensure(idle(each));
    const whole = await all(mgmt.list());
    const paged = await all(mgmt.list({ pageSize: 2 }));
    assert.deepEqual(paged, whole);
    const slugs = whole.map((each) => each.workloadSlug);
    assert.deepEqual(slugs, [...slugs].sort());
    assert.ok(slugs.includes("page-b"));
    assert.equal(whole[0].projectSlug, "acme");
  });
});

describe("watch", () => {
  it("yields what is there, then each change, and misses none over a cut", async () => {
    await mgmt.ensure(idle("watched"));
    const controller = new AbortController();
    const seen = [];
    const watching = (async () => {
      for await (const { kind, workload } of mgmt.watch({ signal: controller.signal })) {
        if (/^watch/.test(workload.workloadSlug)) seen.push(`${kind} ${workload.workloadSlug}`);
      }
    })();
    watching.catch(() => {});
    const until = async (text) => {
      for (let tries = 0; !seen.includes(text) && tries < 500; tries++) await wait(20);
      assert.ok(seen.includes(text), `${text} is not in ${seen}`);
    };
    await until("present watched");
    await mgmt.ensure(idle("watched-too"));
    await until("created watched-too");
    await server.edit((await mgmt.get("watched")).uid, { description: "by hand" });
    await until("updated watched");
    await server.stop("SIGKILL");
    await wait(100);
    await server.restart();
    // Before the stream is taken up again.
    await mgmt.delete("watched");
    await until("deleted watched");
    await mgmt.ensure(idle("watched"));
    await until("created watched");
    assert.equal(seen.filter((each) => each.startsWith("present")).length, 1);
    controller.abort();
    await assert.rejects(watching, { name: "AbortError" });
  });

  it("of one workload says nothing of others", async () => {
    await mgmt.ensure(idle("lone"));
    const seen = [];
    const watching = (async () => {
      for await (const { kind, workload } of mgmt.watch({ slug: "lone" })) {
        seen.push(`${kind} ${workload.workloadSlug}`);
        if (kind === "deleted") return;
      }
    })();
    while (!seen.length) await wait(20);
    await mgmt.ensure(idle("lonely"));
    await mgmt.delete("lone");
    await watching;
    assert.deepEqual(seen, ["present lone", "deleted lone"]);
  });
});

describe("waitUntilReady", () => {
  it("shows the way to ready", async () => {
    await mgmt.ensure(echoSpec("Serving"));
    const phases = [];
    const last = await mgmt.waitUntilReady("serving", {
      timeoutMs: 60_000, onProgress: (progress) => phases.push(progress.phase),
    });
    assert.equal(last.phase, "ready");
    assert.equal(phases.at(-1), "ready");
    assert.ok(last.elapsedMs >= 0);
    const status = (await mgmt.get("serving")).status;
    assert.deepEqual([status.phase, status.ready, status.canaryWeight], ["ready", 1, 0]);
    await mgmt.delete("serving");
  });

  it("throws what the workload failed at", async () => {
    await mgmt.ensure(echoSpec("Broken", { command: `${PYTHON} -c "raise SystemExit(3)"` }));
    await assert.rejects(mgmt.waitUntilReady("broken", { silent: true, timeoutMs: 60_000 }),
      holdfast.WorkloadFailedError);
    await mgmt.delete("broken");
  });

  it("ends when its time is over, with what it saw last", async () => {
    await mgmt.ensure(echoSpec("Slow", { command: `${echoSpec("").command} --startup-delay 60` }));
    const began = performance.now();
    const error = await mgmt.waitUntilReady("slow", { silent: true, timeoutMs: 500 }).catch((e) => e);
    assert.equal(error.name, "WaitTimeoutError");
    assert.match(error.message, /not ready after 0.5 s; it was \w+:/);
    assert.ok(performance.now() - began < 2000);
    await mgmt.delete("slow");
  });

  it("ends at once for a workload that there is not, and by its signal", async () => {
    await assert.rejects(mgmt.waitUntilReady("nobody", { silent: true }), holdfast.NotFoundError);
    const spy = await scripted(hang);
    const waiting = client({ baseUrl: spy.url }).waitUntilReady("x", { silent: true, signal: AbortSignal.timeout(100) });
    await assert.rejects(waiting, { name: "TimeoutError" });
    await spy.close();
  });

  it("waits for a server that is not there yet", async () => {
    const spy = await scripted(cut, json(503, { error: "unavailable", message: "" }, { "Retry-After": "0" }),
      (_, response) => {
        response.writeHead(200, { "Content-Type": "text/event-stream" });
        response.write('data: {"phase":"ready","message":"serving","elapsed_ms":5}\n\n');
      });
    assert.equal((await client({ baseUrl: spy.url, retries: 0 }).waitUntilReady("x", { silent: true })).phase, "ready");
    await spy.close();
  });
});

describe("fromEnv", () => {
  const NAMES = ["HOLDFAST_URL", "HOLDFAST_PROJECT", "HOLDFAST_TOKEN", "INFERENCEKEY_BASE_URL",
    "INFERENCEKEY_PROJECT", "INFERENCEKEY_SDK_TOKEN"];
  const with_ = async (env, test) => {
    const before = Object.fromEntries(NAMES.map((name) => [name, process.env[name]]));
    for (const name of NAMES) delete process.env[name];
    Object.assign(process.env, env);
    try {
      await test();
    } finally {
      for (const name of NAMES) {
        if (before[name] === undefined) delete process.env[name];
        else process.env[name] = before[name];
      }
    }
  };

  it("reads HOLDFAST_* before INFERENCEKEY_*, and arguments before both", async () => {
    const theirs = { INFERENCEKEY_BASE_URL: server.url, INFERENCEKEY_PROJECT: "acme", INFERENCEKEY_SDK_TOKEN: server.admin };
    await with_(theirs, async () => {
      assert.ok(await all(ManagementClient.fromEnv().list()));
    });
    await with_({ ...theirs, HOLDFAST_URL: "http://127.0.0.1:1", HOLDFAST_PROJECT: "ours" }, () => {
      const found = ManagementClient.fromEnv();
      assert.deepEqual([found.api.baseUrl, found.project], ["http://127.0.0.1:1", "ours"]);
      assert.equal(ManagementClient.fromEnv({ baseUrl: server.url, project: "given" }).project, "given");
    });
  });

  it("says what is missing", async () => {
    await with_({}, () => {
      assert.throws(() => ManagementClient.fromEnv(), /HOLDFAST_TOKEN/);
      assert.throws(() => ManagementClient.fromEnv({ sdkToken: "ik_sdk_x" }), /HOLDFAST_URL/);
    });
  });
});

it("a client shows no token when it is printed", async () => {
  const { inspect } = await import("node:util");
  assert.ok(!inspect(mgmt, { depth: 9, showHidden: true }).includes(server.admin.slice(-20)));
});
