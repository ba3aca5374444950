/** Ask a workload something, and print the reply as it comes. */

import { DataClient } from "holdfast-ml";

// HOLDFAST_URL, HOLDFAST_PROJECT, HOLDFAST_API_KEY
const endpoint = DataClient.fromEnv().endpoint("support-bot");
for await (const piece of endpoint.generateTextStream({ prompt: "Hello, who are you?" })) {
  process.stdout.write(piece.text);
}
process.stdout.write("\n");
