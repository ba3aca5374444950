/** Holds: who, why, until when, and what changed under each. Ignore rules: what each hides now. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { failureOf, inGitops, may, project, read, write } from "./api.js";
import { afterEvents } from "./live.js";
import { Empty, notify, Problem, State, Until, useRead } from "./parts.js";
import { pathTo } from "./route.js";
import { applicationLabel, moment, objectName, plural } from "./words.js";

/** @typedef {import("./types").Hold} Hold */
/** @typedef {import("./types").Rule} Rule */

/** @type {Record<string, string>} */
const ENDS = { "revert": "what changed is put back", "pull-request": "what changed is proposed by a pull request" };

export function Holds() {
  const { value, failure, reload } = useRead((signal) => read(inGitops("/holds"), { signal }), [project.value]);
  useEffect(() => afterEvents(reload, 250), []);
  const holds = /** @type {{ holds: Hold[] } | undefined} */ (value)?.holds;
  /** @param {Hold} hold */
  const release = async (hold) => {
    try {
      await write("DELETE", inGitops(`/applications/${applicationLabel(hold.application)}/holds?id=${encodeURIComponent(hold.id)}`));
      notify("This hold ended.");
      reload();
    } catch (error) {
      notify(failureOf(error).message, "bad");
    }
  };
  return html`<main><h1>Holds ${holds && html`<span class="count">${holds.length}</span>`}</h1>
    <p class="lead">Nothing is written to what is on hold. Every hold ends by itself.</p>
    ${failure && html`<${Problem} failure=${failure} retry=${reload} />`}
    ${!holds && !failure && html`<p class="loading">Reading …</p>`}
    ${holds?.length === 0 && html`<${Empty}>Nothing is on hold.<//>`}
    ${holds?.map(
      (hold) => html`<article key=${hold.id} class="card">
        <h2><${State} state="held" word=${hold.object ? objectName(hold.object) : "The whole application"} /></h2>
        <p>“${hold.reason}”</p>
        <dl class="facts">
          <div><dt>Application</dt><dd><a href=${pathTo(project.value, "applications", applicationLabel(hold.application))}>${hold.application}</a></dd></div>
          <div><dt>Ends</dt><dd><${Until} at=${hold.until} /> <span class="faint nowrap">${moment(hold.until)}</span></dd></div>
          <div><dt>By</dt><dd>${hold.by}${hold.from_annotation ? ", by an annotation" : ""} <span class="faint nowrap">since ${moment(hold.since)}</span></dd></div>
          <div><dt>Then</dt><dd>${ENDS[hold.end] ?? hold.end}</dd></div>
          <div><dt>Changed under it</dt><dd>${
            hold.changes?.length
              ? html`<ul class="plain">${hold.changes.map((each) => html`<li key=${each.drift}><a href=${pathTo(project.value, "drifts", each.drift)}>${objectName(each.object)}</a> ${each.fields.map((path) => html`<code key=${path}>${path}</code> `)}</li>`)}</ul>`
              : "nothing that was observed"
          }</dd></div>
        </dl>
        ${
          hold.from_annotation
            ? html`<p class="faint">An annotation of the object began it: it ends with its time, or when <code>holdfast.dev/paused-until</code> is removed there.</p>`
            : may("write")
              ? html`<p class="actions"><button type="button" onClick=${() => release(hold)}>End it now</button></p>`
              : html`<p class="faint">To end it takes the scope write.</p>`
        }
      </article>`,
    )}
  </main>`;
}

/** @param {{ rule: Rule, ended: () => void }} props */
function RuleCard({ rule, ended }) {
  const hidden = rule.hides ?? [];
  const count = rule.hides_count ?? hidden.length;
  const end = async () => {
    try {
      await write("DELETE", inGitops(`/ignore-rules/${encodeURIComponent(rule.name)}?application=${encodeURIComponent(applicationLabel(rule.application))}`));
      notify("The rule ended: what it hid is reported again.");
      ended();
    } catch (error) {
      notify(failureOf(error).message, "bad");
    }
  };
  return html`<article class="card">
    <h2><code>${rule.path || "any path"}</code> <span class="chip">${rule.origin}</span></h2>
    <p>${rule.reason ? `“${rule.reason}”` : html`<span class="faint">No reason is given.</span>`}</p>
    <dl class="facts">
      <div><dt>Rule</dt><dd>${rule.name} <span class="faint">of</span> <a href=${pathTo(project.value, "applications", applicationLabel(rule.application))}>${rule.application}</a></dd></div>
      <div><dt>For</dt><dd>${rule.object || "every object"}${rule.manager ? `, as ${rule.manager} writes it` : ""}</dd></div>
      ${rule.owner && html`<div><dt>Owner</dt><dd>${rule.owner}</dd></div>`}
      <div><dt>Ends</dt><dd>${rule.expires ? html`<${Until} at=${rule.expires} />` : "with its declaration"}</dd></div>
      <div><dt>Hides now</dt><dd>${count ? html`<details><summary>${plural(count, "difference")}</summary><ul class="plain">${hidden.map((each, index) => html`<li key=${index}>${objectName(each.object)} <code>${each.path}</code></li>`)}</ul></details>` : "nothing"}</dd></div>
    </dl>
    ${rule.origin === "temporary" && (may("write") ? html`<p class="actions"><button type="button" onClick=${end}>End it now</button></p>` : html`<p class="faint">To end it takes the scope write.</p>`)}
  </article>`;
}

function RulePreview() {
  const [found, setFound] = useState(/** @type {{ hides: { object: any, path: string }[], hides_count: number } | null} */ (null));
  const [failure, setFailure] = useState(/** @type {import("./api.js").Failure | null} */ (null));
  /** @param {SubmitEvent} event */
  const preview = async (event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.currentTarget));
    const asked = Object.fromEntries([...form].filter(([, value]) => value));
    try {
      setFound(await write("POST", inGitops("/ignore-rules/preview"), asked));
      setFailure(null);
    } catch (error) {
      setFailure(failureOf(error));
    }
  };
  return html`<details class="card"><summary>What would a new rule hide?</summary>
    <form class="filters" onSubmit=${preview}>
      <label class="choice"><span>Path</span><input name="path" required placeholder="spec.replicas" /></label>
      <label class="choice"><span>Kind</span><input name="kind" placeholder="Deployment" /></label>
      <label class="choice"><span>Namespace</span><input name="namespace" /></label>
      <label class="choice"><span>Name</span><input name="name" /></label>
      <label class="choice"><span>Written by</span><input name="manager" placeholder="kubectl-edit" /></label>
      <label class="choice"><span>Application</span><input name="application" placeholder="all" /></label>
      <button type="submit">Preview</button>
    </form>
    <p class="faint">Nothing is changed by a preview. A rule that stays is declared in the Application; one for a while is made from a drift.</p>
    ${failure && html`<${Problem} failure=${failure} />`}
    ${found && html`<p role="status">It would hide <b>${plural(found.hides_count, "difference")}</b> as things are now.</p><ul class="plain">${found.hides.map((each, index) => html`<li key=${index}>${objectName(each.object)} <code>${each.path}</code></li>`)}</ul>`}
  </details>`;
}

export function Rules() {
  const { value, failure, reload } = useRead((signal) => read(inGitops("/ignore-rules"), { signal }), [project.value]);
  useEffect(() => afterEvents(reload, 400), []);
  const rules = /** @type {{ rules: Rule[] } | undefined} */ (value)?.rules;
  return html`<main><h1>Ignore rules ${rules && html`<span class="count">${rules.length}</span>`}</h1>
    <p class="lead">What a rule hides is neither reported nor written.</p>
    <${RulePreview} />
    ${failure && html`<${Problem} failure=${failure} retry=${reload} />`}
    ${!rules && !failure && html`<p class="loading">Reading …</p>`}
    ${rules?.length === 0 && html`<${Empty}>No rule hides anything.<//>`}
    ${rules?.map((rule) => html`<${RuleCard} key=${rule.application + rule.name + rule.path} rule=${rule} ended=${reload} />`)}
  </main>`;
}

