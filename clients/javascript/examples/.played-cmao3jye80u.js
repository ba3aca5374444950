import { DriftError, ManagementClient, OnDrift } from "holdfast-ml";

const mgmt = ManagementClient.fromEnv(); // HOLDFAST_URL, HOLDFAST_PROJECT, HOLDFAST_TOKEN
const spec = {
  name: "Support bot",
  model: "tiny",
  backend: "llamacpp",
  command: "/root/wt/client/.venv/bin/python /root/wt/client/examples/backends/echo_server.py --model tiny",
};

const { workloadSlug, outcome, plan } = await mgmt.ensure(spec);
await mgmt.waitUntilReady(workloadSlug, { timeoutMs: 120_000 });

import { ApiClient, path } from "holdfast-ml";

const api = new ApiClient({ baseUrl: process.env.HOLDFAST_URL, token: process.env.HOLDFAST_TOKEN });
const { drifts } = await api.get(path`/api/projects/${"acme"}/drift`, { query: { state: "open" } });
for await (const { id, event, data } of api.events(path`/api/projects/${"acme"}/events`)) {
  // `lost` and `back` say that the connection is gone, and there again; it resumes by itself.
  break;
}
