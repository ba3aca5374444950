/** Declare a workload, find out what drifted, and put it back. */

import { DriftError, ManagementClient, OnDrift } from "holdfast-ml";

const mgmt = ManagementClient.fromEnv(); // HOLDFAST_URL, HOLDFAST_PROJECT, HOLDFAST_TOKEN
const spec = {
  name: "Support bot",
  model: "tiny",
  backend: "llamacpp",
  command: "llama-server --model /models/tiny.gguf",
};

const { workloadSlug, outcome } = await mgmt.ensure(spec);
console.log(`${workloadSlug} was ${outcome}`);
await mgmt.waitUntilReady(workloadSlug, { timeoutMs: 120_000 });

try {
  await mgmt.ensure({ ...spec, onDrift: OnDrift.Fail });
  console.log("it is as declared");
} catch (error) {
  if (!(error instanceof DriftError)) throw error;
  for (const { path, live, desired, writer } of error.plan.steps[0].changes) {
    console.log(`${path}: ${desired} became ${live}, by ${writer?.manager}`);
  }
  await mgmt.apply(error.plan); // exactly what was shown, or a StalePlanError
}
