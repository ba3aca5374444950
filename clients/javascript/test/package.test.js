/** The package as it would be published: its types, its size, its files, and a user's project. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { VERSION } from "../src/settings.js";
import { echoSpec, PACKAGE, REPOSITORY, startServer } from "./support/server.js";

const run = promisify(execFile);
const BIN = join(PACKAGE, "node_modules", ".bin");
/** Bytes of a bundle that imports these, minified and gzipped. */
const LIMITS = [["*", 9_400], ["{ ManagementClient }", 8_200], ["{ DataClient }", 5_950], ["{ ApiClient }", 4_700]];
const manifest = JSON.parse(await readFile(join(PACKAGE, "package.json"), "utf8"));

for (const [names, limit] of LIMITS) {
  it(`a bundle of ${names} is at most ${limit} bytes, minified and gzipped`, async () => {
    const bundling = run(join(BIN, "esbuild"), ["--bundle", "--minify", "--format=esm", "--target=es2022"], {
      cwd: PACKAGE,
    });
    bundling.child.stdin.end(`export ${names} from "./src/index.js";`);
    const size = gzipSync((await bundling).stdout, { level: 9 }).length;
    console.log(`${names}: ${size} bytes minified and gzipped`);
    assert.ok(size <= limit, `${size} bytes`);
  });
}

it("the sources need no build: they import one another by file, and make no code from text", async () => {
  for (const file of await readdir(join(PACKAGE, "src"))) {
    const text = await readFile(join(PACKAGE, "src", file), "utf8");
    for (const [, from] of text.matchAll(/^(?:import|export)[^;]* from "([^"]+)";/gm)) {
      assert.match(from, /^\.\/\w+\.js$/, `${file} imports ${from}`);
    }
    assert.doesNotMatch(text, /\beval\(|new Function|innerHTML|document\./, file);
  }
});

it("the package needs no other, and its version is said once", async () => {
  assert.equal(manifest.dependencies, undefined);
  assert.equal(VERSION, manifest.version);
  const project = await readFile(join(REPOSITORY, "pyproject.toml"), "utf8");
  assert.equal(/^version = "(.*)"$/m.exec(project)?.[1] ?? manifest.version, manifest.version);
});

it("the lock names no registry", async () => {
  const lock = await readFile(join(PACKAGE, "package-lock.json"), "utf8");
  assert.doesNotMatch(lock, /https?:\/\/(?!github\.com|opencollective\.com|(www\.)?\w+\.\w+\/(sponsors|funding))[^"]*\.tgz/);
  assert.doesNotMatch(lock, /"resolved": "http/);
});

describe("packed", () => {
  let home, tarball;
  before(async () => {
    home = await mkdtemp(join(tmpdir(), "holdfast-pack-"));
    await run("npm", ["pack", "--pack-destination", home], { cwd: PACKAGE });
    tarball = join(home, `${manifest.name}-${manifest.version}.tgz`);
  });
  after(() => rm(home, { recursive: true, force: true }));

  it("has the sources, their types, the README and the licence, and nothing else", async () => {
    const { stdout } = await run("tar", ["-tzf", tarball]);
    const files = stdout.trim().split("\n").map((each) => each.replace(/^package\//, "")).sort();
    const sources = await readdir(join(PACKAGE, "src"));
    assert.deepEqual(files, [
      "LICENSE", "README.md", "package.json",
      ...sources.map((each) => `src/${each}`),
      ...sources.map((each) => `types/${each.replace(".js", ".d.ts")}`),
    ].sort());
  });

  it("is found in order by publint and attw", async () => {
    await run(join(BIN, "publint"), ["run", tarball, "--strict"]);
    await run(join(BIN, "attw"), [tarball, "--profile", "esm-only", "--no-emoji"]);
  });

  it("compiles strictly in an empty TypeScript project, and runs there against a real server", async () => {
    const server = await startServer();
    try {
      const project = join(home, "project");
      await cp(join(PACKAGE, "test", "project"), project, { recursive: true });
      await writeFile(join(project, "package.json"), '{"name": "empty", "private": true, "type": "module"}');
      await run("npm", ["install", "--offline", "--no-audit", "--no-fund", tarball], { cwd: project });
      await run(join(BIN, "tsc"), ["-p", project]).catch((error) => assert.fail(error.stdout));
      const { stdout } = await run(process.execPath, [join(project, "built", "main.js")], {
        env: {
          ...process.env,
          HOLDFAST_URL: server.url,
          HOLDFAST_PROJECT: "acme",
          HOLDFAST_TOKEN: server.admin,
          ECHO_COMMAND: echoSpec("").command,
        },
      });
      assert.deepEqual(JSON.parse(stdout), {
        outcome: "created", phase: "ready", plan: 1, dry: "planned", slugs: ["typed", "ready"],
        text: JSON.parse(stdout).text, deleted: true,
      });
      assert.match(JSON.parse(stdout).text, /typed words/);
    } finally {
      await server.close();
    }
  });
});
