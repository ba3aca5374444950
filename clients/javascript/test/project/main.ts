/** What a user of TypeScript writes. Compiled with --strict against the packed package, and run. */

import {
  Backend,
  DataClient,
  DriftError,
  HoldfastError,
  ManagementClient,
  OnAbsent,
  OnDrift,
  ValidationError,
  type EnsureResult,
  type Plan,
  type Progress,
  type Workload,
  type WorkloadSpec,
} from "holdfast-ml";

declare const process: { env: Record<string, string | undefined> };

const spec: WorkloadSpec = {
  name: "Typed",
  model: "tiny",
  backend: "echo",
  command: process.env["ECHO_COMMAND"] ?? "",
  rollout: { maxSurge: 1 },
};

const mgmt = ManagementClient.fromEnv({ timeoutMs: 20_000 });
const created: EnsureResult = await mgmt.ensure(spec, { onAbsent: OnAbsent.Create });
const outcome: "created" | "updated" | "unchanged" | "planned" | "left" = created.outcome;
const ready: Progress = await mgmt.waitUntilReady(created.workloadSlug, {
  timeoutMs: 60_000,
  silent: true,
});

const other = { ...spec, rollout: { maxSurge: 2 }, onDrift: OnDrift.Fail };
let plan: Plan | undefined;
try {
  await mgmt.ensure(other);
} catch (error) {
  if (!(error instanceof DriftError)) throw error;
  const refused: ValidationError & HoldfastError = error;
  plan = error.plan;
  if (refused.code !== "drift") throw new Error(refused.code);
}
const dry = await mgmt.ensure({ ...other, onDrift: OnDrift.DryRun });

const slugs: string[] = [];
for await (const workload of mgmt.list()) {
  const each: Workload = workload;
  slugs.push(each.workloadSlug);
}
for await (const { kind, workload } of mgmt.watch({ slug: "typed" })) {
  if (kind === "present") slugs.push(`${workload.status?.phase}`);
  break;
}

const key = await mgmt.api.send("POST", "/api/projects/acme/tokens", {
  name: "typed",
  kind: "live",
  workload: created.workloadSlug,
});
const endpoint = DataClient.fromEnv().endpoint("typed", { apiKey: key.token });
let text = "";
for await (const piece of endpoint.generateTextStream({ prompt: "typed words" })) text += piece.text;
const deleted: boolean = await mgmt.delete("typed");

console.log(JSON.stringify({ outcome, phase: ready.phase, plan: plan?.steps.length, dry: dry.outcome,
  slugs, text, deleted }));

// What a compiler has to refuse.
export const refused = () => {
  // @ts-expect-error a spec needs a model
  void mgmt.ensure({ name: "x", backend: Backend.Vllm });
  // @ts-expect-error there is no such policy
  void mgmt.ensure(spec, { onDrift: "heal" });
  // @ts-expect-error there is no such field
  void mgmt.ensure({ name: "x", model: "m", backend: Backend.Ollama, replicsa: 1 });
  // @ts-expect-error a slug is text
  void mgmt.delete(1);
  // @ts-expect-error there is no such option
  void mgmt.get("x", { timeout: 1 });
};
