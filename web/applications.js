/** Applications: how each stands; and one of them, with its objects, holds, pull requests and plans. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { failureOf, inGitops, may, project, read, write } from "./api.js";
import { DiffBar, FieldDiff } from "./diff.js";
import { HoldDialog } from "./drift.js";
import { useKeys } from "./keys.js";
import { afterEvents } from "./live.js";
import { Age, Empty, FormDialog, Grid, notify, Problem, State, Until, useRead } from "./parts.js";
import { pathTo, route, setQuery } from "./route.js";
import { costWords, moment, objectKey, objectName, plural, sentenceCase } from "./words.js";

/** @typedef {import("./types").Application} Application */
/** @typedef {import("./types").ObjectStatus} ObjectStatus */

/** @param {Application} app */
function counts(app) {
  const parts = [
    app.drifted && plural(app.drifted, "drift"),
    app.awaiting && `${app.awaiting} waiting`,
    app.ahead && `${app.ahead} out of sync`,
    app.held && `${app.held} held`,
    app.orphans && plural(app.orphans, "orphan"),
  ].filter(Boolean);
  return parts.join(", ") || "none";
}

/** @param {Application} app @param {string} column */
function cell(app, column) {
  switch (column) {
    case "name":
      return html`<a href=${pathTo(project.value, "applications", app.label)} tabindex="-1">${app.id}</a>`;
    case "sync":
      return html`<${State} state=${app.sync} />`;
    case "health":
      return html`<${State} state=${app.health} />`;
    case "counts":
      return counts(app);
    case "objects":
      return plural(app.objects ?? 0, "object");
    case "commit":
      return html`<span title=${app.source.subject ?? ""}><code>${(app.revision || app.source.commit || "none").slice(0, 8)}</code> ${app.source.subject ?? ""}</span>`;
    default:
      return app.suspended ? html`<${State} state="suspended" />` : app.source.stale ? html`<${State} state="unknown" word="Source stale" />` : app.holds?.some((hold) => !hold.object) ? html`<${State} state="held" />` : html`<${Age} at=${app.looked_at} suffix=" ago" />`;
  }
}

export function Applications() {
  const { value, failure, reload } = useRead((signal) => read(inGitops("/applications"), { signal }), [project.value]);
  useEffect(() => afterEvents(reload, 400), []);
  const list = /** @type {{ applications: Application[] } | undefined} */ (value)?.applications;
  if (failure && !list) return html`<main><h1>Applications</h1><${Problem} failure=${failure} retry=${reload} /></main>`;
  return html`<main><h1>Applications ${list && html`<span class="count">${list.length}</span>`}</h1>
    ${!list && html`<p class="loading">Reading …</p>`}
    ${list?.length === 0 && html`<${Empty}>No application of this project is followed. An Application is a Kubernetes object; “holdfast help gitops” says how to declare one.<//>`}
    ${list && list.length > 0 && html`<${Grid} label="Applications" name="applications" rows=${list} rowKey=${(/** @type {Application} */ app) => app.id} cell=${cell}
      href=${(/** @type {Application} */ app) => pathTo(project.value, "applications", app.label)}
      columns=${[["name", "Application"], ["sync", "Sync"], ["health", "Health"], ["counts", "Drift"], ["objects", "Objects"], ["commit", "Commit"], ["seen", "Observed"]]} />`}
  </main>`;
}

/** @param {{ app: Application }} props */
function Facts({ app }) {
  const source = app.source;
  return html`<dl class="facts">
    <div><dt>Sync</dt><dd><${State} state=${app.sync} /></dd></div>
    <div><dt>Health</dt><dd><${State} state=${app.health} /></dd></div>
    <div><dt>Follows</dt><dd class="wrap">${source.url} <span class="faint">${source.revision}${source.path ? `, ${source.path}` : ""}</span></dd></div>
    <div><dt>Applied</dt><dd>${app.revision ? html`<code>${app.revision.slice(0, 12)}</code>` : "nothing yet"}</dd></div>
    <div><dt>Newest commit</dt><dd><code>${(source.commit ?? "").slice(0, 12) || "unknown"}</code> ${source.subject ?? ""} <span class="faint">${source.author ? `by ${source.author}` : ""}${source.fetched_at ? html`, fetched <${Age} at=${source.fetched_at} suffix=" ago" />` : ""}</span></dd></div>
    <div><dt>Observed</dt><dd><${Age} at=${app.looked_at} suffix=" ago" />: ${plural(app.objects ?? 0, "object")}, ${counts(app) === "none" ? "no drift" : counts(app)}${app.tolerated ? `, ${app.tolerated} tolerated` : ""}</dd></div>
    <div><dt>New commits</dt><dd>${app.automatic ? "are applied by themselves" : "wait for a sync"}${app.prunes ? ", and what is gone from Git is deleted" : ""}</dd></div>
    ${app.next_window && html`<div><dt>Window</dt><dd>${app.next_window.opens_at ? html`opens <${Until} at=${app.next_window.opens_at} />` : html`closes <${Until} at=${app.next_window.closes_at} />`}</dd></div>`}
  </dl>`;
}

/** @param {{ label: string }} props what a fresh look finds */
function FreshDiff({ label }) {
  const { value, failure, reload } = useRead((signal) => read(inGitops(`/applications/${label}/diff`), { signal }), [project.value, label]);
  const diff = /** @type {import("./types").ApplicationDiff | undefined} */ (value);
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!diff) return html`<p class="loading">Looking at Git and the cluster …</p>`;
  const objects = diff.objects.filter((each) => each.fields?.length || each.standing !== "in-sync");
  return html`<div>
    <p class="faint">Looked at ${moment(diff.looked_at)}, commit ${diff.commit.slice(0, 12)}. ${diff.stale ?? ""}</p>
    ${objects.length === 0 && html`<${Empty}>Nothing differs.<//>`}
    ${objects.length > 0 && html`<${DiffBar} />`}
    ${objects.map(
      (each) => html`<section key=${objectKey(each.object)}>
        <h2 class="object">${objectName(each.object)} <${State} state=${each.standing} /> ${each.drift && html`<a href=${pathTo(project.value, "drifts", each.drift)}>${each.drift}</a>`}</h2>
        ${each.message && html`<p class="note">${each.message}</p>`}
        ${(each.fields ?? []).map((field) => html`<${FieldDiff} key=${field.path} entry=${{ ...field, desired: field.git }} note=${field.rule ? `Tolerated: ${field.rule}` : field.state === "pending" ? "Git moved, and it is not applied yet." : ""} />`)}
      </section>`,
    )}
  </div>`;
}

/** @param {{ label: string, waits: boolean }} props what a sync would do */
function FreshPlan({ label, waits }) {
  const { value, failure, reload } = useRead((signal) => read(inGitops(`/applications/${label}/plan`), { signal }), [project.value, label]);
  const plan = /** @type {import("./types").SyncPlan | undefined} */ (value);
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!plan) return html`<p class="loading">Looking at Git and the cluster …</p>`;
  if (!plan.steps.length) return html`<${Empty}>A sync would change nothing${waits ? ": what differs waits for a decision" : ""}.<//>`;
  return html`<div><p class="faint">Plan ${plan.id}, commit ${plan.commit.slice(0, 12)}. ${plan.stale ?? ""}</p><${DiffBar} />
    ${plan.steps.map(
      (step, index) => html`<section key=${index}>
        <h2 class="object">${sentenceCase(step.action)} ${objectName(step.object)}</h2>
        <p class="note">${sentenceCase(step.reason)}. ${sentenceCase(costWords(step.cost))}.</p>
        ${(step.fields ?? []).map((entry) => html`<${FieldDiff} key=${entry.path} entry=${entry} />`)}
      </section>`,
    )}</div>`;
}

/** @param {{ label: string }} props */
function Objects({ label }) {
  const { value, failure, reload } = useRead((signal) => read(inGitops(`/applications/${label}/objects`), { signal }), [project.value, label]);
  useEffect(() => afterEvents(reload, 400), [label]);
  const objects = /** @type {{ objects: ObjectStatus[] } | undefined} */ (value)?.objects;
  const chosen = route.value.query.get("standing") ?? "";
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!objects) return html`<p class="loading">Reading …</p>`;
  const standings = [...new Set(objects.map((each) => each.standing))];
  const order = ["drifted", "ahead", "left-over", "orphan", "unknown", "in-sync"];
  const rows = objects.filter((each) => !chosen || each.standing === chosen).toSorted((a, b) => order.indexOf(a.standing) - order.indexOf(b.standing));
  /** @param {ObjectStatus} each @param {string} column */
  const show = (each, column) => {
    if (column === "object") return each.drift ? html`<a href=${pathTo(project.value, "drifts", each.drift)} tabindex="-1">${objectName(each.object)}</a>` : objectName(each.object);
    if (column === "sync") return html`<${State} state=${each.standing} />`;
    if (column === "health") return html`<${State} state=${each.health} />`;
    if (column === "held") return each.held_until ? html`held, ends <${Until} at=${each.held_until} />` : each.tolerated?.length ? `${each.tolerated.length} tolerated` : "";
    return html`<span title=${each.message ?? ""}>${each.message ?? ""}</span>`;
  };
  return html`<div>
    <p class="tabs">${["", ...standings].map((each) => html`<button key=${each} type="button" class=${each === chosen ? "small chosen" : "small"} aria-pressed=${each === chosen ? "true" : "false"} onClick=${() => setQuery({ standing: each })}>${each ? html`<${State} state=${each} /> ${objects.filter((one) => one.standing === each).length}` : `All ${objects.length}`}</button>`)}</p>
    <${Grid} label="Objects" name="objects" rows=${rows} rowKey=${(/** @type {ObjectStatus} */ each) => objectKey(each.object)} cell=${show}
      href=${(/** @type {ObjectStatus} */ each) => (each.drift ? pathTo(project.value, "drifts", each.drift) : "")}
      columns=${[["object", "Object"], ["sync", "Sync"], ["health", "Health"], ["held", "Left alone"], ["message", "Message"]]} />
  </div>`;
}

/** @param {{ label: string }} props */
export function ApplicationScreen({ label }) {
  const { value, failure, reload } = useRead((signal) => read(inGitops(`/applications/${encodeURIComponent(label)}`), { signal }), [project.value, label]);
  const app = /** @type {Application | undefined} */ (value);
  const tab = route.value.query.get("tab") ?? "objects";
  const [dialog, setDialog] = useState("");
  useEffect(() => afterEvents(reload, 250), [label]);
  useKeys(dialog || !may("write") ? {} : { h: () => setDialog("hold") });
  if (failure && !app) return html`<main><h1>Application</h1><${Problem} failure=${failure} retry=${reload} /></main>`;
  if (!app) return html`<main><h1>Application</h1><p class="loading">Reading …</p></main>`;
  const release = async () => {
    try {
      const ended = /** @type {{ holds: unknown[] }} */ (await write("DELETE", inGitops(`/applications/${label}/holds`))).holds.length;
      const noted = (app.holds ?? []).filter((hold) => hold.from_annotation).length;
      notify(`${plural(ended, "hold")} ended.${noted ? ` ${plural(noted, "hold")} by annotation ${noted === 1 ? "stays" : "stay"} until the annotation is removed.` : ""}`);
      reload();
    } catch (error) {
      notify(failureOf(error).message, "bad");
    }
  };
  /** @param {FormData} form */
  const sync = async (form) => {
    const done = /** @type {{ done: boolean, told?: string[] }} */ (await write("POST", inGitops(`/applications/${label}/sync`), { prune: form.has("prune"), force: form.has("force"), wait: 20 }));
    notify(done.done ? (done.told?.at(-1) ?? "Synced: nothing had to be changed.") : "The sync is under way.");
    reload();
  };
  return html`<main>
    <p class="crumbs"><a href=${pathTo(project.value, "applications")}>Applications</a> /</p>
    <h1>${app.id}</h1>
    <${Facts} app=${app} />
    ${app.message && html`<p class="note">${app.message}</p>`}
    ${app.source.stale && html`<div class="problem"><p><b>The source is stale.</b> ${app.source.stale}</p></div>`}
    <p class="actions">${
      may("write")
        ? html`<button type="button" onClick=${() => setDialog("sync")}>Sync …</button><button type="button" onClick=${() => setDialog("hold")}>Hold … <kbd>h</kbd></button>
          ${app.holds?.some((hold) => !hold.from_annotation) ? html`<button type="button" onClick=${release}>End its holds</button>` : ""}`
        : html`<span class="faint">To sync or hold it takes the scope write.</span>`
    } <a href=${pathTo(project.value, "inbox", "", { application: app.label })}>Its drifts</a></p>
    ${(app.plans ?? []).length > 0 && html`<section><h2>Plans that wait</h2><ul class="plain">${app.plans?.map((plan) => html`<li key=${plan.id}><${State} state=${plan.approved_by ? "approved" : plan.rejected_by ? "rejected" : "awaiting-approval"} /> <a href=${pathTo(project.value, "plans", plan.id)}>${plan.told || plan.id}</a></li>`)}</ul></section>`}
    ${(app.holds ?? []).length > 0 && html`<section><h2>Holds</h2><ul class="plain">${app.holds?.map((hold) => html`<li key=${hold.id}><${State} state="held" word=${hold.object ? objectName(hold.object) : "The whole application"} /> ends <${Until} at=${hold.until} />, by ${hold.by}: “${hold.reason}”</li>`)}</ul></section>`}
    ${(app.pull_requests ?? []).length > 0 && html`<section><h2>Pull requests</h2><ul class="plain">${app.pull_requests?.map((pull) => html`<li key=${pull.url}><a href=${pull.url} rel="noreferrer" target="_blank">${pull.url}</a> <span class="faint">${pull.kind}</span> ${objectName(pull.object)} <a href=${pathTo(project.value, "drifts", pull.drift)}>${pull.drift}</a></li>`)}</ul></section>`}
    ${(app.conditions ?? []).length > 0 && html`<details><summary>${plural(app.conditions?.length ?? 0, "condition")}</summary><ul class="plain">${app.conditions?.map((each) => html`<li key=${each.type}><b>${each.type}</b> ${each.status}${each.reason ? `, ${each.reason}` : ""}. ${each.message ?? ""}</li>`)}</ul></details>`}
    <p class="tabs main">${[["objects", "Objects"], ["diff", "Diff now"], ["plan", "Plan a sync"]].map(([name = "", word]) => html`<button key=${name} type="button" class=${tab === name ? "chosen" : ""} aria-pressed=${tab === name ? "true" : "false"} onClick=${() => setQuery({ tab: name === "objects" ? "" : name })}>${word}</button>`)}</p>
    ${tab === "diff" ? html`<${FreshDiff} label=${label} />` : tab === "plan" ? html`<${FreshPlan} label=${label} waits=${Boolean(app.awaiting)} />` : html`<${Objects} label=${label} />`}
    ${dialog === "hold" && html`<${HoldDialog} application=${app.id} onClose=${() => setDialog("")} done=${(/** @type {string} */ word) => (notify(word), reload())} />`}
    ${dialog === "sync" && html`<${FormDialog} title=${`Sync ${app.id}`} action="Sync" send=${sync} onClose=${() => setDialog("")}>
      <p>What Git declares at <code>${(app.source.commit ?? "").slice(0, 12)}</code> is applied. Objects on hold are left out.</p>
      <label class="check"><input type="checkbox" name="prune" /> also delete what is no longer declared</label>
      ${may("approve") && html`<label class="check"><input type="checkbox" name="force" /> also do what a guard, a window or a review holds back</label>`}
    <//>`}
  </main>`;
}
