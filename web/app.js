/** The page: who is signed in, where one is, and the frame around every screen. */

import { effect, html, render, signal, useEffect, useState } from "./vendor/preact.js";
import { failureOf, has, me, project } from "./api.js";
import { Inbox } from "./inbox.js";
import { prefix, useKeys } from "./keys.js";
import { follow, staleSince } from "./live.js";
import { applyTheme, Login, MeScreen, readMe } from "./me.js";
import { Notices, Problem } from "./parts.js";
import { go, pathTo, route } from "./route.js";

/** What stands for a screen that is being read. */
const Reading = () => html`<main><p class="loading">Reading …</p></main>`;

/** What stands for a window that is being read: the keys of the page below it do nothing already. */
function Opening() {
  useKeys({}, { modal: true });
  return null;
}

/**
 * A part that is read when it is first opened. The drift's screen is read once the inbox is there.
 * @param {() => Promise<Record<string, any>>} load
 * @param {string} name
 * @param {() => unknown} [Waiting]
 */
function later(load, name, Waiting = Reading) {
  /** @type {unknown} */
  let Found;
  const open = () => load().then((module) => (Found = module[name]));
  /** @param {Record<string, unknown>} props */
  const Screen = (props) => {
    const [, show] = useState(0);
    if (Found) return html`<${Found} ...${props} />`;
    open().then(() => show(1), (error) => (failure.value = failureOf(error)));
    return html`<${Waiting} />`;
  };
  return Screen;
}

const drift = () => import("./drift.js");
const DriftScreen = later(drift, "DriftScreen");
const WorkloadDriftScreen = later(drift, "WorkloadDriftScreen");
const PlanScreen = later(() => import("./plan.js"), "PlanScreen");
const Applications = later(() => import("./applications.js"), "Applications");
const ApplicationScreen = later(() => import("./applications.js"), "ApplicationScreen");
const Workloads = later(() => import("./workloads.js"), "Workloads");
const WorkloadScreen = later(() => import("./workloads.js"), "WorkloadScreen");
const Holds = later(() => import("./holds.js"), "Holds");
const Rules = later(() => import("./holds.js"), "Rules");
const History = later(() => import("./history.js"), "History");
const palette = () => import("./palette.js");
const Help = later(palette, "Help", Opening);
const Palette = later(palette, "Palette", Opening);

/** Where one can go here: address, word and key. @returns {[string, string, string][]} */
function screens() {
  const at = project.value;
  /** @type {[string, string, string][]} */
  const found = [["inbox", "Inbox", "i"]];
  if (has("applications")) found.push(["applications", "Applications", "a"]);
  if (has("workloads")) found.push(["workloads", "Workloads", "w"]);
  if (has("applications")) found.push(["holds", "Holds", "o"], ["rules", "Ignore rules", "r"]);
  found.push(["history", "History", "h"]);
  return found.map(([screen, word, key]) => [pathTo(at, screen), word, key]);
}

const over = signal("");
const failure = signal(/** @type {import("./api.js").Failure | null} */ (null));

function Live() {
  const since = staleSince.value;
  if (since === undefined) return html`<span class="live"><span aria-hidden="true">◌</span> connecting</span>`;
  if (!since) return html`<span class="live" title="What happens is shown as it happens"><span aria-hidden="true">●</span> live</span>`;
  return html`<span class="live stale" role="status"><span aria-hidden="true">○</span> stale since ${since.toLocaleTimeString("en-GB")}</span>`;
}

function Frame() {
  const here = route.value.screen;
  const who = me.value;
  const projects = who?.projects ?? [];
  const parts = { drifts: "inbox", "workload-drifts": "inbox", plans: "inbox" };
  const current = pathTo(project.value, /** @type {Record<string, string>} */ (parts)[here] ?? here);
  useEffect(() => document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [current]);
  return html`<header class="top">
    <a class="skip" href="#page" onClick=${(/** @type {Event} */ event) => (event.preventDefault(), document.querySelector("main")?.setAttribute("tabindex", "-1"), document.querySelector("main")?.focus())}>Skip to content</a>
    <a class="brand" href="/ui/"><svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true"><rect width="16" height="16" rx="3.5" /><path d="M5 3v10M11 3v10M5 8h6" /></svg>Holdfast</a>
    ${
      projects.length > 1
        ? html`<label class="project"><span class="unseen">Project</span><select value=${project.value} onChange=${(/** @type {any} */ event) => go(pathTo(event.target.value, "inbox"))}>${projects.map((each) => html`<option key=${each.project} value=${each.project} selected=${each.project === project.value}>${each.project}</option>`)}</select></label>`
        : html`<span class="project">${project.value}</span>`
    }
    <nav aria-label="Screens">${screens().map(([href, word]) => html`<a key=${href} href=${href} aria-current=${href === current ? "page" : undefined}>${word}</a>`)}</nav>
    <div class="right"><${Live} />
      <button type="button" class="plain find" onClick=${() => (over.value = "palette")}><span>Find</span> <kbd>Ctrl K</kbd></button>
      <button type="button" class="plain help" onClick=${() => (over.value = "help")} aria-label="Keys">?</button>
      <a href="/ui/me" class="who" aria-current=${here === "me" ? "page" : undefined}>${who?.name}</a>
    </div>
  </header>`;
}

function Screen() {
  const { screen, id, project: asked } = route.value;
  if (asked && !me.value?.projects.some((each) => each.project === asked)) {
    return html`<main><h1>Not found</h1><${Problem} failure=${{ status: 404, message: `There is no project ${asked}, or you may not read it.`, code: "", hint: "", requestId: "" }} /></main>`;
  }
  switch (screen) {
    case "inbox":
      return html`<${Inbox} />`;
    case "drifts":
      return id ? html`<${DriftScreen} key=${id} id=${id} />` : html`<${Inbox} />`;
    case "workload-drifts":
      return html`<${WorkloadDriftScreen} key=${id} id=${id} />`;
    case "plans":
      return html`<${PlanScreen} key=${id} id=${id} />`;
    case "applications":
      return id ? html`<${ApplicationScreen} key=${id} label=${id} />` : html`<${Applications} />`;
    case "workloads":
      return id ? html`<${WorkloadScreen} key=${id} slug=${id} />` : html`<${Workloads} />`;
    case "holds":
      return html`<${Holds} />`;
    case "rules":
      return html`<${Rules} />`;
    case "history":
      return html`<${History} />`;
    case "me":
      return html`<${MeScreen} />`;
    default:
      return html`<main><h1>Not found</h1><${Problem} failure=${{ status: 404, message: "This address names no screen.", code: "", hint: "", requestId: "" }} /></main>`;
  }
}

function Signed() {
  const at = project.value;
  useEffect(() => {
    const ended = new AbortController();
    follow(ended.signal);
    return () => ended.abort();
  }, [at]);
  useKeys({
    "?": () => (over.value = "help"),
    "Ctrl-k": () => (over.value = over.value ? "" : "palette"),
    "g m": () => go("/ui/me"),
    ...Object.fromEntries(screens().map(([href, , key]) => [`g ${key}`, () => go(href)])),
  });
  return html`<${Frame} /><${Screen} /><${Notices} />
    ${prefix.value && html`<p class="prefix" role="status"><kbd>${prefix.value}</kbd> and then? <kbd>?</kbd> alone lists the keys, <kbd>Esc</kbd> ends it.</p>`}
    ${over.value === "help" && html`<${Help} onClose=${() => (over.value = "")} />`}
    ${over.value === "palette" && html`<${Palette} screens=${screens()} onClose=${() => (over.value = "")} help=${() => (over.value = "help")} />`}`;
}

function Page() {
  if (failure.value) return html`<main><h1>Holdfast</h1><${Problem} failure=${failure.value} retry=${start} /></main>`;
  if (me.value === undefined) return html`<p class="loading whole">Holdfast</p>`;
  if (me.value === null || route.value.screen === "login") return html`<${Login} />`;
  return html`<${Signed} />`;
}

/** Nobody is shown a screen that is not theirs: to the login, and back afterwards. */
effect(() => {
  const who = me.value;
  const { screen } = route.value;
  if (who === null && screen !== "login") {
    const next = location.pathname + location.search;
    go(next === "/ui/" ? "/ui/login" : `/ui/login?next=${encodeURIComponent(next)}`, { replace: true });
  } else if (who && !screen) {
    const first = who.projects[0]?.project;
    go(first ? pathTo(first, "inbox") : "/ui/me", { replace: true });
  }
});

/** @type {Record<string, string>} */
const TITLES = { drifts: "Drift", "workload-drifts": "Drift", plans: "Plan", rules: "Ignore rules" };
effect(() => {
  const { screen, id } = route.value;
  const word = TITLES[screen] ?? screen.charAt(0).toUpperCase() + screen.slice(1);
  document.title = [id, word, "Holdfast"].filter(Boolean).join(" · ");
});

async function start() {
  failure.value = null;
  try {
    if (route.peek().screen === "login") me.value = null;
    else await readMe();
  } catch (error) {
    failure.value = failureOf(error);
  }
  // What is likely to be opened next; it is read again where it is opened.
  whenIdle(() => [drift, palette].forEach((load) => void load().catch(() => undefined)));
}

/** Not every browser says when it is idle. @param {() => void} work */
function whenIdle(work) {
  if ("requestIdleCallback" in globalThis) requestIdleCallback(work);
  else setTimeout(work, 200);
}

applyTheme();
render(html`<${Page} />`, /** @type {Element} */ (document.getElementById("page")));
void start();
