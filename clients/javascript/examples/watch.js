/** Print every change of the project's workloads for a while. */

import { ManagementClient } from "holdfast-ml";

const seconds = Number(process.argv[2] ?? 60);
const signal = AbortSignal.timeout(seconds * 1000);
try {
  for await (const { kind, workload } of ManagementClient.fromEnv().watch({ signal })) {
    console.log(`${kind} ${workload.workloadSlug}: ${workload.status?.phase}`);
  }
} catch (error) {
  if (!signal.aborted) throw error;
}
