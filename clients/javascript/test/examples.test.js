/** The examples and the pages: what they show is run against a real server. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, it } from "node:test";
import { promisify } from "node:util";
import { ManagementClient } from "../src/index.js";
import { echoSpec, PACKAGE, REPOSITORY, startServer } from "./support/server.js";

const run = promisify(execFile);
const COMMAND = "llama-server --model /models/tiny.gguf";
let home, server, env, mgmt;
before(async () => {
  // Elsewhere, so that a run that is killed leaves nothing in the clone.
  home = await mkdtemp(join(tmpdir(), "holdfast-examples-"));
  await mkdir(join(home, "node_modules"));
  await symlink(PACKAGE, join(home, "node_modules", "holdfast-ml"));
  server = await startServer();
  mgmt = new ManagementClient({ baseUrl: server.url, project: "acme", sdkToken: server.admin });
  await play(await readFile(join(PACKAGE, "examples", "ensure.js"), "utf8"), {
    HOLDFAST_TOKEN: server.admin,
  });
  const key = await server.make({ name: "app", kind: "live", workload: "support-bot" });
  env = { HOLDFAST_TOKEN: server.admin, HOLDFAST_API_KEY: key };
});
after(async () => {
  await server.close();
  await rm(home, { recursive: true });
});

/** Run a program that finds the package by its name, with a command that is here. */
async function play(text, more, ...given) {
  const file = join(home, "played.mjs");
  await writeFile(file, text.replaceAll(COMMAND, echoSpec("").command));
  const base = { ...process.env, HOLDFAST_URL: server.url, HOLDFAST_PROJECT: "acme" };
  return (await run(process.execPath, [file, ...given], { env: { ...base, ...more } })).stdout;
}

const example = (name) => readFile(join(PACKAGE, "examples", name), "utf8");
let edits = 0;
const edit = async () => server.edit((await mgmt.get("support-bot")).uid, { description: `edit ${edits++}` });

it("the example of ensure finds drift, and puts it back", async () => {
  assert.match(await play(await example("ensure.js"), env), /was unchanged\nit is as declared/);
  const spec = (await mgmt.get("support-bot")).spec;
  await server.edit((await mgmt.get("support-bot")).uid, { config: { command: `${spec.command} --tokens 3` } });
  const said = await play((await example("ensure.js")).replace("await mgmt.ensure(spec);", "{ workloadSlug: 'support-bot', outcome: 'found' };"), env);
  assert.match(said, /\/command\/--tokens: .* became 3, by curl/);
  assert.equal((await mgmt.get("support-bot")).spec.command, spec.command);
});

it("the example of a chat prints the reply", async () => {
  await mgmt.waitUntilReady("support-bot", { silent: true, timeoutMs: 60_000 });
  assert.match(await play(await example("chat.js"), env), /who are you/);
});

it("the example of watching prints what is there", async () => {
  assert.match(await play(await example("watch.js"), env, "1"), /present support-bot: \w+/);
});

for (const page of ["clients/javascript/README.md", "docs/how-to/javascript.md"]) {
  it(`what ${page} shows runs`, async () => {
    const text = await readFile(join(REPOSITORY, page), "utf8");
    const blocks = [...text.matchAll(/```js\n(.*?)```/gs)].map(([, block]) => block);
    assert.ok(blocks.length >= 2);
    // Somebody changes something meanwhile, for a page that follows what happens.
    const timer = setInterval(() => edit().catch(() => {}), 300);
    await play(blocks.join("\n"), env).finally(() => clearInterval(timer));
    await mgmt.waitUntilReady("support-bot", { silent: true, timeoutMs: 60_000 });
  });
}
