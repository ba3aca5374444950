/** A real `holdfast serve` for the tests, from the clone's own environment, with its tokens. */

import { execFile, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
export const PACKAGE = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const REPOSITORY = join(PACKAGE, "..", "..");
const BIN = process.env.HOLDFAST_BIN ?? join(REPOSITORY, ".venv", "bin");
export const PYTHON = join(BIN, "python");
const HOLDFAST = join(BIN, "holdfast");
const ECHO = join(REPOSITORY, "examples", "backends", "echo_server.py");

/** What a test declares: a real process, which answers as OpenAI's API does. */
export function echoSpec(name, more = {}) {
  return { name, model: "tiny", backend: "echo", command: `${PYTHON} ${ECHO} --model tiny`, ...more };
}

export async function startServer(...flags) {
  const home = await mkdtemp(join(tmpdir(), "holdfast-js-"));
  const db = join(home, "holdfast.db");
  const env = { ...process.env, HOLDFAST_HOME: home };
  const started = ["serve", "--db", db, "--log-level", "warning", "--shared-runner", ...flags];
  let child, port = "0", url;

  async function start() {
    child = spawn(HOLDFAST, [...started, "--port", port], { env, stdio: ["ignore", "pipe", "pipe"] });
    let said = "", wrong = "";
    child.stderr.on("data", (chunk) => { wrong += chunk; });
    url = await new Promise((resolve, reject) => {
      child.stdout.on("data", (chunk) => {
        said += chunk;
        const found = /http:\/\/[\w.:]+/.exec(said);
        if (found) resolve(found[0]);
      });
      child.on("exit", (code) => reject(new Error(`holdfast serve ended with ${code}: ${wrong}`)));
    });
    port = new URL(url).port;
  }

  async function stop(signal = "SIGTERM") {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }

  await start();
  await run(HOLDFAST, ["project", "create", "acme", "--db", db], { env });
  const admin = await token("admin", "--scope", "admin");

  async function token(name, ...more) {
    const command = ["token", "create", "--name", name, "--db", db, "-p", "acme", "-o", "name"];
    return (await run(HOLDFAST, [...command, ...more], { env })).stdout.trim();
  }

  return {
    get url() { return url; },
    admin,
    token,
    /** Make a token through the API, which is quicker. */
    async make(form) {
      const answer = await fetch(`${url}/api/projects/acme/tokens`, {
        method: "POST",
        headers: { Authorization: `Bearer ${admin}`, "Content-Type": "application/json" },
        body: JSON.stringify(form),
      });
      if (!answer.ok) throw new Error(await answer.text());
      return (await answer.json()).token;
    },
    /** Change a workload beside its declaration, as somebody with curl does. */
    async edit(uid, body) {
      const answer = await fetch(`${url}/api/workloads/${uid}`, {
        method: "PATCH",
        headers: {
          Authorization: `Bearer ${admin}`,
          "Content-Type": "application/json",
          "User-Agent": "curl/8.5.0",
        },
        body: JSON.stringify(body),
      });
      if (!answer.ok) throw new Error(await answer.text());
    },
    stop,
    /** End the process at once and start another on the same store and port. */
    async restart(signal) {
      await stop(signal);
      await start();
    },
    async close() {
      await stop();
      await rm(home, { recursive: true, force: true });
    },
  };
}
