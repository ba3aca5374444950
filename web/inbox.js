/** The inbox: what waits for me first, then what else is open; by drift or by cause. */

import { html, signal, useEffect, useRef } from "./vendor/preact.js";
import { failureOf, has, inGitops, inProject, isAborted, project, read } from "./api.js";
import { useKeys } from "./keys.js";
import { afterEvents } from "./live.js";
import { Age, announce, Empty, Grid, Kinds, Problem, State, useRead } from "./parts.js";
import { pathTo, route, setQuery } from "./route.js";
import { causesOf, causeWords, costShort, costTone, costWords, objectName, plural, resolutionWords, writersOf } from "./words.js";

/** @typedef {import("./types").Drift} Drift */
/** @typedef {import("./types").DriftList} DriftList */
/** @typedef {import("./types").WorkloadDrift} WorkloadDrift */
/** @typedef {import("./types").Plan} Plan */
/**
 * @typedef {{ key: string, heading: string }
 *   | { key: string, drift: Drift }
 *   | { key: string, plan: Plan }
 *   | { key: string, found: WorkloadDrift }} InboxRow
 */

const PAGE = 100;
const FILTERS = ["q", "state", "type", "cause", "writer", "application"];
const STATES = ["detected", "awaiting-approval", "approved", "rejected", "snoozed", "healing", "fighting", "pull-request", "held", "parked", "resolved", "all"];
const KINDS = ["configuration", "image", "resource", "secret", "model"];
const CAUSES = ["person", "autoscaler", "controller", "admission", "hardware", "gitops", "unknown"];

/** Drifts of one question, page after page. Kept while one looks at a drift and comes back. */
class DriftPages {
  drifts = signal(/** @type {Drift[]} */ ([]));
  fresh = signal(/** @type {Drift[]} */ ([]));
  totals = signal({ mine: 0, all: 0 });
  /** How many plans wait for who looks, beside the drifts. */
  plans = signal(0);
  failure = signal(/** @type {import("./api.js").Failure | null} */ (null));
  loaded = signal(false);
  active = "";
  /** Those that waited for me when they were read: they stand first until the list is read anew. */
  #mine = new Set();
  /** @type {{ mine: boolean, cursor: string } | null} */
  #next = { mine: true, cursor: "" };
  #busy = false;

  /** @param {Record<string, string>} question */
  constructor(question) {
    this.question = question;
    this.mineFirst = !question.state;
    if (!this.mineFirst) this.#next = { mine: false, cursor: "" };
  }

  get more() {
    return this.#next !== null;
  }

  /** @param {boolean} mine @param {string} cursor @returns {Promise<DriftList>} */
  #read(mine, cursor) {
    const asked = { ...this.question, limit: PAGE, cursor, ...(mine ? { waiting_for: "me" } : {}) };
    return read(inGitops("/drifts"), { query: asked });
  }

  /** Read the next page, and the one after it where the first was empty. */
  async readOn() {
    if (this.#busy || !this.#next) return;
    this.#busy = true;
    try {
      const { mine, cursor } = this.#next;
      const page = await this.#read(mine, cursor);
      const known = new Set(this.drifts.value.map((drift) => drift.id));
      const more = page.drifts.filter((drift) => !known.has(drift.id));
      for (const drift of more) if (this.mineFirst && drift.waiting_for_me) this.#mine.add(drift.id);
      this.drifts.value = [...this.drifts.value, ...more];
      const total = page.total ?? page.drifts.length;
      this.totals.value = mine ? { ...this.totals.value, mine: total } : { ...this.totals.value, all: total };
      if (page.next) this.#next = { mine, cursor: page.next };
      else this.#next = mine ? { mine: false, cursor: "" } : null;
      this.failure.value = null;
      const short = this.drifts.value.length < PAGE && this.#next;
      this.#busy = false;
      if (short) await this.readOn();
      this.loaded.value = true;
    } catch (error) {
      if (!isAborted(error)) this.failure.value = failureOf(error);
    } finally {
      this.#busy = false;
    }
  }

  /** Read what changed: rows in place, new ones behind a button. */
  async refresh() {
    if (!this.loaded.value) return;
    try {
      const [mine, all] = await Promise.all([this.mineFirst ? this.#read(true, "") : null, this.#read(false, "")]);
      const newest = new Map([...(mine?.drifts ?? []), ...all.drifts].map((drift) => [drift.id, drift]));
      const shown = this.drifts.value;
      const missing = shown.filter((drift) => !newest.has(drift.id) && !drift.resolved_at).slice(0, 25);
      const whole = !all.next && !mine?.next;
      const again = await Promise.all((whole || shown.length <= PAGE ? missing : []).map((drift) => this.#readOne(drift.id)));
      for (const drift of again) if (drift) newest.set(drift.id, drift);
      this.drifts.value = shown.map((drift) => newest.get(drift.id) ?? drift);
      const known = new Set(shown.map((drift) => drift.id));
      const before = this.fresh.value.length;
      this.fresh.value = [...newest.values()].filter((drift) => !known.has(drift.id) && !drift.resolved_at);
      this.totals.value = { mine: mine?.total ?? 0, all: all.total ?? all.drifts.length };
      if (this.fresh.value.length > before) announce(`${plural(this.fresh.value.length, "new drift")}`);
    } catch (error) {
      if (!isAborted(error)) failureOf(error);
    }
  }

  /** @param {string} id @returns {Promise<Drift | null>} */
  async #readOne(id) {
    try {
      return await read(inGitops(`/drifts/${id}`));
    } catch {
      return null;
    }
  }

  /** The drift before or after one, of those that can still be decided. @param {string} id @param {1 | -1} step */
  beside(id, step) {
    const all = this.rows();
    const at = all.findIndex((drift) => drift.id === id);
    for (let next = at + step; next >= 0 && next < all.length; next += step) {
      const drift = all[next];
      if (drift && !drift.resolved_at) return drift;
    }
    return undefined;
  }

  /** As they are shown: a row stays where it is, whoever decides about it meanwhile. */
  rows() {
    return [...this.mine(), ...this.rest()];
  }

  /** Those that waited for me when they were read. */
  mine() {
    return this.drifts.value.filter((drift) => this.#mine.has(drift.id));
  }

  rest() {
    return this.drifts.value.filter((drift) => !this.#mine.has(drift.id));
  }
}

/** @type {Map<string, DriftPages>} */
const kept = new Map();
let shownPages = /** @type {DriftPages | null} */ (null);

/** The list that was looked at last: the neighbours of an open drift. */
export function lastPages() {
  return shownPages;
}

/** @param {Record<string, string>} question */
function pagesFor(question) {
  const key = `${project.peek()} ${JSON.stringify(question)}`;
  let pages = kept.get(key);
  if (!pages) {
    pages = new DriftPages(question);
    kept.set(key, pages);
    if (has("applications")) void pages.readOn();
  }
  return pages;
}

const turn = signal(0);

/** Forget what was read: the inbox reads anew. */
function forgetPages() {
  kept.clear();
  shownPages = null;
  turn.value++;
}

function question() {
  const query = route.value.query;
  return Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]).filter(([, value]) => value));
}

/** @param {import("./types").Entry[]} entries who wrote it, and what sort of writer that is */
function byWords(entries) {
  const causes = causesOf(entries).map(causeWords).join(", ");
  const writers = writersOf(entries).join(", ");
  return html`<span title=${`${writers || "unknown writer"}: ${causes}`}>${writers ? `${writers}, ${causes}` : causes === "unknown" ? "unknown" : causes}</span>`;
}

/** @param {InboxRow} row @param {string} column */
function cell(row, column) {
  if ("plan" in row) return planCell(row.plan, column);
  if ("found" in row) return workloadCell(row.found, column);
  if (!("drift" in row)) return "";
  const drift = row.drift;
  switch (column) {
    case "object":
      return html`<a href=${pathTo(project.value, "drifts", drift.id)} tabindex="-1">${objectName(drift.object)}</a>`;
    case "application":
      return html`<span title=${drift.route ? `Route ${drift.route}` : "No route matched: it is only reported"}>${drift.application.split("/").at(-1)} <span class="route">${drift.route ?? "reported"}</span></span>`;
    case "kinds":
      return html`<${Kinds} kinds=${drift.kinds} most=${1} />`;
    case "fields":
      return drift.entries.length === 1 ? html`<code>${drift.entries[0]?.path || "whole object"}</code>` : plural(drift.entries.length, "field");
    case "by":
      return byWords(drift.entries);
    case "age":
      return html`<${Age} at=${drift.first_seen} />`;
    case "cost":
      return html`<span class=${costTone(drift.cost)} title=${`To put it back: ${costWords(drift.cost)}`}>${costShort(drift.cost)}</span>`;
    default:
      return html`<${State} state=${drift.state} word=${drift.resolution ? `Resolved: ${resolutionWords(drift.resolution)}` : undefined} />`;
  }
}

/** @param {Plan} plan @param {string} column */
function planCell(plan, column) {
  switch (column) {
    case "object":
      return html`<a href=${pathTo(project.value, "plans", plan.id)} tabindex="-1">Plan ${plan.id}</a>`;
    case "application":
      return plan.application.split("/").at(-1);
    case "kinds":
      return html`<span class="chip">plan</span>`;
    case "fields":
      return plural(plan.steps?.length ?? 0, "step");
    case "by":
      return (plan.reasons ?? []).map((each) => each.replaceAll("-", " ")).join(", ");
    case "age":
      return html`<${Age} at=${plan.made_at} />`;
    case "cost":
      return plan.over ? "" : html`<span class=${costTone(plan.cost)} title=${costWords(plan.cost)}>${costShort(plan.cost)}</span>`;
    default:
      return plan.over ? html`<${State} state="resolved" word="Waits no longer" />` : html`<${State} state="awaiting-approval" />`;
  }
}

/** @param {WorkloadDrift} found @param {string} column */
function workloadCell(found, column) {
  switch (column) {
    case "object":
      return html`<a href=${pathTo(project.value, "workload-drifts", found.id)} tabindex="-1">${found.slug}</a>`;
    case "application":
      return "workload";
    case "kinds":
      return html`<${Kinds} kinds=${found.kinds} most=${1} />`;
    case "fields":
      return found.fields.length === 1 ? html`<code>${found.fields[0]?.path}</code>` : plural(found.fields.length, "field");
    case "by":
      return byWords(found.fields);
    case "age":
      return html`<${Age} at=${found.first_seen} />`;
    case "cost":
      return found.resolved_at || found.over ? "" : html`<span class=${costTone(found.cost)} title=${`To put it back: ${costWords(found.cost, "replica")}`}>${costShort(found.cost, "replica")}</span>`;
    default:
      return found.over ? html`<${State} state="resolved" word="Open no longer" />` : html`<${State} state=${found.resolved_at ? "resolved" : "detected"} />`;
  }
}

/** @type {[string, string][]} */
const COLUMNS = [
  ["object", "Object"],
  ["kinds", "Kind"],
  ["fields", "Field"],
  ["by", "Written by"],
  ["application", "Application"],
  ["age", "Open for"],
  ["cost", "Cost"],
  ["state", "State"],
];

/** @param {InboxRow} row */
const hrefOf = (row) =>
  "drift" in row ? pathTo(project.value, "drifts", row.drift.id) : "plan" in row ? pathTo(project.value, "plans", row.plan.id) : "found" in row ? pathTo(project.value, "workload-drifts", row.found.id) : "";

/** @param {InboxRow} row decided or gone since it was read */
const isOver = (row) => ("drift" in row ? row.drift.resolved_at : "plan" in row ? row.plan.over : "found" in row && (row.found.over || row.found.resolved_at));

/** How many decisions wait for who looks: of drifts and of plans. @param {DriftPages} pages */
const waitingFor = (pages) => pages.totals.value.mine + pages.plans.value;

/** @param {DriftPages} pages @param {Plan[]} plans @param {WorkloadDrift[]} found @returns {InboxRow[]} */
function rowsOf(pages, plans, found) {
  const mine = pages.mine();
  const rest = pages.rest();
  /** @type {InboxRow[]} */
  const rows = [];
  const myPlans = plans.filter((plan) => plan.waiting_for_me);
  const otherPlans = plans.filter((plan) => !plan.waiting_for_me);
  if (mine.length || myPlans.length) rows.push({ key: "waiting", heading: `Waiting for you: ${waitingFor(pages).toLocaleString("en")}` });
  for (const plan of myPlans) rows.push({ key: plan.id, plan });
  for (const drift of mine) rows.push({ key: drift.id, drift });
  const others = otherPlans.length + Math.max(rest.length, pages.totals.value.all - pages.totals.value.mine);
  if ((rest.length || otherPlans.length) && rows.length) rows.push({ key: "others", heading: `Also open: ${others.toLocaleString("en")}` });
  for (const plan of otherPlans) rows.push({ key: plan.id, plan });
  for (const drift of rest) rows.push({ key: drift.id, drift });
  if (found.length && (mine.length || rest.length)) rows.push({ key: "workloads", heading: `Workloads: ${found.length}` });
  for (const each of found) rows.push({ key: each.id, found: each });
  return rows;
}

/** @param {{ name: string, label: string, values: string[], words?: (value: string) => string }} props */
function Choice({ name, label, values, words = (value) => value }) {
  const chosen = route.value.query.get(name) ?? "";
  return html`<label class="choice"><span>${label}</span>
    <select value=${chosen} onChange=${(/** @type {any} */ event) => setQuery({ [name]: event.target.value })}>
      <option value="" selected=${!chosen}>${name === "state" ? "open" : "any"}</option>
      ${values.map((value) => html`<option key=${value} value=${value} selected=${value === chosen}>${words(value)}</option>`)}
    </select></label>`;
}

function Filters() {
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));
  const query = route.value.query;
  const timer = useRef(0);
  useKeys({ "/": () => search.current?.select() });
  /** @param {Event & { target: HTMLInputElement }} event */
  const typed = (event) => {
    const text = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ q: text.trim() }), 200);
  };
  const by = query.get("group") === "cause";
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label class="choice search"><span>Search <kbd>/</kbd></span>
      <input ref=${search} type="search" name="q" autocomplete="off" placeholder="object, path, writer, id …" value=${query.get("q") ?? ""}
        onInput=${typed} onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && search.current?.blur()} /></label>
    <${Choice} name="state" label="State" values=${STATES} words=${(/** @type {string} */ state) => (state === "parked" ? "blocked" : state.replaceAll("-", " "))} />
    <${Choice} name="type" label="Kind" values=${KINDS} />
    <${Choice} name="cause" label="Cause" values=${CAUSES} words=${causeWords} />
    <label class="choice"><span>Rows</span>
      <select value=${by ? "cause" : ""} onChange=${(/** @type {any} */ event) => setQuery({ group: event.target.value })}>
        <option value="" selected=${!by}>one per drift</option><option value="cause" selected=${by}>one per cause</option>
      </select></label>
    ${["writer", "application"].map((name) => {
      const value = query.get(name);
      return value && html`<button key=${name} type="button" class="chosen" onClick=${() => setQuery({ [name]: "" })}>${name} ${value} <span aria-hidden="true">✕</span><span class="unseen">, show all</span></button>`;
    })}
  </form>`;
}

/**
 * A list that does not move under its reader: what is in it stays, as it is now, and what came
 * since waits. What is gone from it stays too, and is marked.
 * @template {{ id: string }} Item
 * @param {Item[] | undefined} items
 * @param {unknown} about begins anew when it changes
 * @returns {{ shown: (Item & { over?: boolean })[], fresh: number }}
 */
function useSteady(items, about) {
  const held = useRef(/** @type {{ about: unknown, items: Item[] } | null} */ (null));
  if (held.current?.about !== about) held.current = null;
  if (!items) return { shown: [], fresh: 0 };
  held.current ??= { about, items };
  const newest = new Map(items.map((item) => [item.id, item]));
  const known = new Set(held.current.items.map((item) => item.id));
  held.current.items = held.current.items.map((item) => newest.get(item.id) ?? item);
  return {
    shown: held.current.items.map((item) => (newest.has(item.id) ? item : { ...item, over: true })),
    fresh: items.filter((item) => !known.has(item.id)).length,
  };
}

/** @param {{ pages: DriftPages }} props */
function DriftRows({ pages }) {
  const applications = useRead(async (signal) => {
    if (!has("applications")) return [];
    const found = await read(inGitops("/applications"), { signal });
    return /** @type {{ applications: import("./types").Application[] }} */ (found).applications;
  }, [project.value]);
  const workloads = useRead(async (signal) => {
    if (!has("workloads")) return [];
    const found = await read(inProject("/drift"), { signal, query: { state: route.peek().query.get("state") === "all" ? "all" : "open" } });
    return /** @type {{ drifts: WorkloadDrift[] }} */ (found).drifts;
  }, [project.value, route.value.query.get("state")]);
  useEffect(
    () =>
      afterEvents(() => {
        void pages.refresh();
        applications.reload();
        workloads.reload();
      }, 250),
    [pages],
  );
  useEffect(() => {
    if (pages.loaded.peek()) void pages.refresh(); // what happened while another screen was shown
  }, [pages]);
  const query = route.value.query;
  const filtered = FILTERS.some((name) => query.get(name));
  const waiting = applications.value?.flatMap((each) => each.plans ?? []).filter((plan) => !plan.approved_by && !plan.rejected_by);
  const { shown: allPlans, fresh: freshPlans } = useSteady(waiting, pages);
  const plans = filtered ? [] : allPlans;
  const forMe = plans.filter((plan) => plan.waiting_for_me && !plan.over).length;
  useEffect(() => {
    pages.plans.value = forMe;
  }, [pages, forMe]);
  const words = (query.get("q") ?? "").toLowerCase();
  const { shown: drifted, fresh: freshWorkloads } = useSteady(workloads.value, pages);
  const found = drifted.filter((each) => !words || `${each.slug} ${each.id} ${JSON.stringify(each.fields)}`.toLowerCase().includes(words));
  const rows = rowsOf(pages, plans, found);
  const fresh = pages.fresh.value.length + freshWorkloads;
  const freshOnes = [fresh && plural(fresh, "new drift"), freshPlans && !filtered && plural(freshPlans, "new plan")].filter(Boolean).join(", ");
  useEffect(() => {
    if (freshPlans || freshWorkloads) announce(freshOnes);
  }, [freshPlans, freshWorkloads]);
  const show = () => {
    forgetPages();
    scrollTo(0, 0);
  };
  useKeys(freshOnes ? { ".": show } : {});
  const failure = pages.failure.value;
  const ready = (pages.loaded.value || !has("applications")) && (workloads.value || !has("workloads"));
  return html`<div>
    <div class="fresh">${freshOnes && html`<button type="button" class="primary" onClick=${show}>${freshOnes}: show <kbd>.</kbd></button>`}</div>
    ${failure && html`<${Problem} failure=${failure} retry=${() => pages.readOn()} />`}
    ${ready && !rows.length && !failure && html`<${Empty}>${filtered ? "No drift matches." : "Nothing drifted. Everything is as declared, as far as it was observed."}<//>`}
    ${rows.length > 0 &&
    html`<${Grid} label="Drifts" name="inbox" columns=${COLUMNS} rows=${rows} total=${pages.totals.value.all + plans.length + found.length}
      rowKey=${(/** @type {InboxRow} */ row) => row.key} heading=${(/** @type {InboxRow} */ row) => ("heading" in row ? row.heading : "")}
      cell=${cell} href=${hrefOf} tone=${(/** @type {InboxRow} */ row) => (isOver(row) ? "over" : "")}
      active=${pages.active} onActive=${(/** @type {string} */ key) => (pages.active = key)} onEnd=${() => has("applications") && pages.readOn()} />`}
    ${!ready && !failure && html`<p class="loading">Reading …</p>`}
  </div>`;
}

function CauseRows() {
  const asked = question();
  const { value, failure, reload } = useRead((signal) => read(inGitops("/drifts"), { query: { ...asked, group: "cause" }, signal }), [project.value, asked]);
  useEffect(() => afterEvents(reload, 400), []);
  const list = /** @type {import("./types").GroupList | undefined} */ (value);
  /** @typedef {import("./types").CauseGroup} CauseGroup */
  /** @param {CauseGroup} group */
  const href = (group) => pathTo(project.value, "inbox", "", { ...asked, cause: group.cause, ...(group.writer ? { writer: group.writer } : {}) });
  /** @param {CauseGroup} group @param {string} column */
  const show = (group, column) => {
    if (column === "cause") return html`<a href=${href(group)} tabindex="-1">${group.writer ?? "an unknown writer"}</a> <span class="faint">${causeWords(group.cause)}</span>`;
    if (column === "count") return plural(group.count, "drift");
    if (column === "kinds") return html`<${Kinds} kinds=${group.kinds} />`;
    if (column === "applications") return group.applications.map((each) => each.split("/").at(-1)).join(", ");
    if (column === "first") return html`<${Age} at=${group.first_seen} suffix=" ago" />`;
    return html`<${Age} at=${group.last_seen} suffix=" ago" />`;
  };
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!list) return html`<p class="loading">Reading …</p>`;
  if (!list.groups.length) return html`<${Empty}>Nothing drifted. Everything is as declared, as far as it was observed.<//>`;
  return html`<${Grid} label="Causes" name="causes" rows=${list.groups} href=${href} cell=${show}
    rowKey=${(/** @type {CauseGroup} */ group) => `${group.cause} ${group.writer ?? ""}`}
    columns=${[["cause", "Cause"], ["count", "Drifts"], ["kinds", "Kind"], ["applications", "Applications"], ["first", "First seen"], ["last", "Last seen"]]} />`;
}

export function Inbox() {
  void turn.value;
  const pages = pagesFor(has("applications") ? question() : {});
  shownPages = pages;
  const { all } = pages.totals.value;
  const mine = waitingFor(pages);
  const title = mine ? `${plural(mine, "decision")} ${mine === 1 ? "waits" : "wait"} for you` : "Inbox";
  return html`<main>
    <h1>${title}${pages.loaded.value && has("applications") ? html` <span class="count">${plural(all, "drift")} in all</span>` : ""}</h1>
    ${has("applications") && html`<${Filters} />`}
    ${route.value.query.get("group") === "cause" ? html`<${CauseRows} />` : html`<${DriftRows} pages=${pages} />`}
  </main>`;
}
