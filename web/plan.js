/** One plan: immutable, linked by its digest from chat and CI; and what moved, where it is stale. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { failureOf, inGitops, may, project, read, write } from "./api.js";
import { DiffBar, FieldDiff, toggleSplit } from "./diff.js";
import { CommentField, Timeline } from "./drift.js";
import { useKeys } from "./keys.js";
import { afterEvents } from "./live.js";
import { Age, copyText, FormDialog, notify, Problem, State, useRead } from "./parts.js";
import { pathTo } from "./route.js";
import { applicationLabel, costWords, moment, objectName, planKey, plural, sentenceCase, wholeSides } from "./words.js";

/** @typedef {import("./types").Plan} Plan */

/** @type {Record<string, string>} */
const REASONS = {
  "empty": "Git declares nothing any more",
  "mass-delete": "it deletes many objects at once",
  "mass-change": "it changes many objects at once",
  "data-loss": "data would be lost",
  "claimed": "another tool claims an object",
  "scale-to-zero": "it leaves no pod",
  "mass-heal": "it heals many objects at once",
  "rewound": "the branch was moved back",
  "diverged": "the branch has another history",
  "unrelated": "the branch has an unrelated history",
};

/** @param {{ id: string }} props */
export function PlanScreen({ id }) {
  const { value, failure, reload, set } = useRead((signal) => read(inGitops(`/plans/${encodeURIComponent(planKey(id))}`), { signal }), [project.value, id]);
  const plan = /** @type {Plan | undefined} */ (value);
  const subject = plan?.drift || plan?.id || "";
  const history = useRead((signal) => (subject ? read(inGitops("/history"), { query: { subject, limit: 100 }, signal }) : Promise.resolve(undefined)), [project.value, subject]);
  const [refused, setRefused] = useState(/** @type {import("./api.js").Failure | null} */ (null));
  const [dialog, setDialog] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => afterEvents(() => (reload(), history.reload())), [id]);
  const drift = plan?.drift ?? "";
  const undecided = Boolean(plan && !plan.approved_by && !plan.rejected_by && plan.current !== false && !drift);
  const approvable = undecided && Boolean(plan?.waiting_for_me);
  const rejectable = undecided && may("approve");
  const sendApproval = async (/** @type {string} */ comment) => {
    if (!plan) return;
    set(await write("POST", inGitops(`/plans/${encodeURIComponent(plan.id)}/approve`), { plan: plan.digest, comment }));
    notify("Approved: exactly this plan is carried out.");
    setRefused(null);
    reload();
  };
  const approve = async () => {
    if (!plan || busy) return;
    if (plan.needs_comment) {
      setDialog("approve");
      return;
    }
    setBusy(true);
    try {
      await sendApproval("");
    } catch (error) {
      setRefused(failureOf(error));
      reload();
    } finally {
      setBusy(false);
    }
  };
  useKeys({
    s: toggleSplit,
    y: () => void copyText(location.origin + pathTo(project.value, "plans", planKey(plan?.digest ?? id)), "the link"),
    e: () => void copyText(`holdfast approve ${plan?.id ?? id} --plan-digest ${plan?.digest ?? ""}`, "the command"),
    ...(approvable && !dialog ? { a: (event) => void (event.repeat || approve()) } : {}),
    ...(rejectable && !dialog ? { x: () => setDialog("reject") } : {}),
  });
  if (failure && !plan) return html`<main><h1>Plan</h1><${Problem} failure=${failure} retry=${reload} /></main>`;
  if (!plan) return html`<main><h1>Plan</h1><p class="loading">Reading …</p></main>`;
  const state = plan.approved_by ? "approved" : plan.rejected_by ? "rejected" : plan.current === false ? "stale" : "awaiting-approval";
  const steps = plan.steps ?? [];
  const fields = plan.fields ?? [];
  return html`<main class="drift">
    <p class="crumbs"><a href=${pathTo(project.value, "inbox")}>Inbox</a> / plan</p>
    <h1>${plan.told || `Plan ${plan.id} of ${plan.application}`}</h1>
    <dl class="facts">
      <div><dt>State</dt><dd>${state === "stale" ? html`<${State} state="parked" word="Stale" />` : html`<${State} state=${state} />`}</dd></div>
      <div><dt>Application</dt><dd><a href=${pathTo(project.value, "applications", applicationLabel(plan.application))}>${plan.application}</a></dd></div>
      <div><dt>Digest</dt><dd><code class="wrap">${plan.digest}</code></dd></div>
      ${plan.commit && html`<div><dt>Commit</dt><dd><code>${plan.commit.slice(0, 12)}</code></dd></div>`}
      ${plan.made_at && html`<div><dt>Made</dt><dd>${moment(plan.made_at)} <span class="faint">(<${Age} at=${plan.made_at} suffix=" ago" />)</span></dd></div>`}
      ${plan.reasons?.length ? html`<div><dt>Waits because</dt><dd>${plan.reasons.map((each) => REASONS[each] ?? each).join("; ")}</dd></div>` : ""}
      <div><dt>Cost</dt><dd>${sentenceCase(costWords(plan.cost))}</dd></div>
      ${drift && html`<div><dt>Drift</dt><dd><a href=${pathTo(project.value, "drifts", drift)}>${drift}</a></dd></div>`}
      ${plan.approved_by && html`<div><dt>Approved by</dt><dd>${plan.approved_by}${plan.comment ? `: “${plan.comment}”` : ""}</dd></div>`}
      ${plan.rejected_by && html`<div><dt>Rejected by</dt><dd>${plan.rejected_by}${plan.comment ? `: “${plan.comment}”` : ""}</dd></div>`}
    </dl>
    ${plan.current === false && state !== "stale" && plan.moved?.length ? html`<p class="note">${plan.moved.join(" ")}</p>` : ""}
    ${state === "stale" && html`<div class="problem moved"><p><b>This plan is not the newest any more,</b> and cannot be approved.</p>
      <ul>${(plan.moved ?? []).map((each) => html`<li key=${each}>${each}</li>`)}</ul></div>`}
    ${refused && html`<${Problem} failure=${refused} />`}
    ${undecided &&
    html`<p class="actions">
      ${approvable && html`<button type="button" class="primary" disabled=${busy} onClick=${approve}>Approve <kbd>a</kbd></button>`}
      ${rejectable && html`<button type="button" onClick=${() => setDialog("reject")}>Reject <kbd>x</kbd></button>`}
      ${!approvable && html`<span class="faint">${plan.why_not}</span>`}
    </p>`}
    ${drift && state === "awaiting-approval" && html`<p class="note">It is decided on <a href=${pathTo(project.value, "drifts", drift)}>its drift</a>.</p>`}
    ${steps.length > 0 && html`<section><h2>${plural(steps.length, "step")}</h2><ol class="steps">${steps.map((step, index) => html`<li key=${index}>${step.replace(/^[-+~!] /, "")}</li>`)}</ol></section>`}
    ${fields.length > 0 && html`<section><h2>Fields</h2><${DiffBar} />${fields.map(
      (field, index) => html`<div key=${index}>${field.object && objectName(field.object) !== objectName(fields[index - 1]?.object) && html`<h3 class="object">${objectName(field.object)}</h3>`}<${FieldDiff} entry=${{ kind: "", ...field }} ...${field.path ? {} : { sides: wholeSides(field.action !== "create", field.action !== "delete") }} /></div>`,
    )}</section>`}
    <section><h2>What happened</h2><${Timeline} journal=${history.value} /></section>
    ${dialog === "approve" && html`<${FormDialog} title="Approve exactly this plan" action="Approve" onClose=${() => setDialog("")}
      send=${(/** @type {FormData} */ form) => sendApproval(String(form.get("comment")))}><${CommentField} label="Why" required /><//>`}
    ${dialog === "reject" && html`<${FormDialog} title="Reject this plan" action="Reject" onClose=${() => setDialog("")}
      send=${async (/** @type {FormData} */ form) => {
        set(await write("POST", inGitops(`/plans/${encodeURIComponent(plan.id)}/reject`), { comment: form.get("comment") }));
        notify("Rejected: it is not carried out.");
        reload();
      }}><${CommentField} label="Why" required /><//>`}
  </main>`;
}
