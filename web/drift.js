/** One drift: what differs, who wrote it, what each choice does and costs, and what happened. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { failureOf, inGitops, inProject, may, me, project, read, write } from "./api.js";
import { DiffBar, FieldDiff, Patch, toggleSplit, valueText } from "./diff.js";
import { lastPages } from "./inbox.js";
import { useKeys } from "./keys.js";
import { afterEvents } from "./live.js";
import { Age, announce, copyText, FormDialog, Kinds, notify, Problem, State, Until, useRead } from "./parts.js";
import { go, pathTo } from "./route.js";
import { applicationLabel, costTone, costWords, driftSentence, moment, objectKey, objectName, planKey, plural, remediationWords, resolutionWords, sentenceCase, shortDigest, wholeSides } from "./words.js";

/** @typedef {import("./types").Drift} Drift */
/** @typedef {import("./types").Choice} Choice */
/** @typedef {import("./types").Choices} Choices */
/** @typedef {import("./types").Journal} Journal */

const HOURS = 3600;
/** @type {[number, string][]} */
export const SPANS = [
  [HOURS, "1 hour"],
  [4 * HOURS, "4 hours"],
  [24 * HOURS, "1 day"],
  [72 * HOURS, "3 days"],
  [7 * 24 * HOURS, "1 week"],
];

/** The code of a refusal of what is another by now. */
const STALE = "stale_plan";

/** @type {Record<string, [string, string]>} key and word of each choice */
const CHOICES = {
  approve: ["a", "Approve"],
  reject: ["x", "Reject"],
  codify: ["c", "Codify"],
  revert: ["r", "Revert"],
  snooze: ["z", "Snooze"],
  hold: ["h", "Hold"],
  ignore: ["i", "Ignore"],
};

/** @param {{ label?: string, chosen?: number }} props */
export function SpanField({ label = "For", chosen = 24 * HOURS }) {
  return html`<label>${label}<select name="seconds">${SPANS.map(([seconds, word]) => html`<option key=${seconds} value=${seconds} selected=${seconds === chosen}>${word}</option>`)}</select></label>`;
}

/** @param {{ label: string, required?: boolean, name?: string }} props */
export function CommentField({ label, required = false, name = "comment" }) {
  return html`<label>${label}<textarea name=${name} rows="3" maxlength="500" required=${required} autofocus></textarea></label>`;
}

/** Two drifts of one id are what a reviewer read when these are equal. @param {Drift} drift */
const identity = (drift) => `${drift.digest ?? ""} ${drift.plan ?? ""} ${JSON.stringify(drift.entries)}`;

/** @param {Drift} before @param {Drift} after what moved between the two, in sentences */
function moved(before, after) {
  const had = new Map(before.entries.map((entry) => [entry.path, entry]));
  const has = new Map(after.entries.map((entry) => [entry.path, entry]));
  /** @param {unknown} value */
  const show = (value) => valueText(value).split("\n")[0]?.slice(0, 60) || "not set";
  const sentences = [];
  for (const [path, entry] of has) {
    const old = had.get(path);
    if (!old) sentences.push(`${path || "The whole object"} differs as well: live is ${show(entry.live)}.`);
    else if (valueText(old.live) !== valueText(entry.live)) sentences.push(`${path}: live was ${show(old.live)} and is ${show(entry.live)}.`);
    else if (valueText(old.desired) !== valueText(entry.desired)) sentences.push(`${path}: Git declared ${show(old.desired)} and declares ${show(entry.desired)}.`);
  }
  for (const path of had.keys()) if (!has.has(path)) sentences.push(`${path || "The whole object"} does not differ any more.`);
  return sentences.length ? sentences : ["Its plan was made anew; the fields are the same."];
}

/** @param {{ choice: Choice, keyName: string, word: string, act: () => void }} props */
function ChoiceRow({ choice, keyName, word, act }) {
  return html`<tr>
    <th scope="row">${
      choice.allowed
        ? html`<button type="button" class=${choice.choice === "approve" ? "primary" : ""} onClick=${act}>${word} <kbd>${keyName}</kbd></button>`
        : html`<span class="faint">${word}</span>`
    }</th>
    <td>${choice.allowed ? choice.effect : html`<span class="faint">${choice.why_not}</span>`}
      ${choice.allowed && choice.cost && (choice.cost.kind !== "none" || choice.cost.added || choice.choice === "approve") && html`<div class=${`cost ${costTone(choice.cost)}`}>${sentenceCase(costWords(choice.cost))}.</div>`}</td>
  </tr>`;
}

/** @param {{ journal: Journal | undefined }} props */
export function Timeline({ journal }) {
  if (!journal) return html`<p class="loading">Reading …</p>`;
  if (!journal.entries.length) return html`<p class="faint">The journal says nothing about it yet.</p>`;
  return html`<ol class="timeline">${journal.entries.toReversed().map(
    (entry) => html`<li key=${entry.seq}><time datetime=${entry.at}>${moment(entry.at)}</time>
      <span><b>${sentenceCase(entry.action)}</b> ${entry.actor && html`by ${entry.actor}`}<br />${entry.summary}${entry.detail?.comment ? html`<br />“${entry.detail.comment}”` : ""}</span></li>`,
  )}</ol>`;
}

/**
 * @typedef {object} Deciding what a window about one drift works with
 * @property {Drift} drift as its reader saw it
 * @property {boolean} moved whether it is another by now
 * @property {(what: string, body: Record<string, unknown>) => Promise<any>} post
 * @property {() => void} onClose
 * @property {(after: Drift | null, word: string) => void} done
 */

/**
 * A window that decides about what is on the screen: nothing is sent once that has moved.
 * @param {{ title: string, action: string, moved: boolean, wide?: boolean, disabled?: boolean, send: (form: FormData) => Promise<void>, onClose: () => void, children?: import("./vendor/preact.js").Child }} props
 */
function DecisionForm({ moved, disabled, children, ...form }) {
  return html`<${FormDialog} ...${form} disabled=${disabled || moved}>
    ${moved && html`<p role="alert"><b>It moved since you read it,</b> so nothing can be sent. Close this window to see what moved.</p>`}
    ${children}
  <//>`;
}

/** @param {Drift} after what was answered to an approval */
const approvalWords = (after) => (after.first_approver && !after.decided_by ? "Approved once: it takes a second person." : "Approved: exactly this plan is carried out.");

/** @param {Drift} after what was answered to a revert */
function revertWords(after) {
  if (after.state === "approved") return "It is put back with the next pass, if nothing moves.";
  if (after.remediation === "pull-request") return "The next pass opens a pull request with the decision.";
  return "It waits for a review.";
}

/** @param {Deciding} props */
function CodifyDialog({ drift, moved, post, onClose, done }) {
  const { value, failure } = useRead((signal) => read(inGitops(`/drifts/${drift.id}/codify-preview`), { signal }), [drift.id]);
  const preview = /** @type {import("./types").CodifyPreview | undefined} */ (value);
  const send = async () => done(await post(`codify?digest=${encodeURIComponent(drift.digest ?? "")}`, {}), "The next pass opens the pull request.");
  return html`<${DecisionForm} title="Codify: have Git declare the live value" action="Open the pull request" wide moved=${moved} disabled=${!preview?.possible} send=${send} onClose=${onClose}>
    ${!preview && !failure && html`<p class="loading">Making the edit …</p>`}
    ${failure && html`<${Problem} failure=${failure} />`}
    ${preview && !preview.possible && html`<p><b>No pull request can do that.</b> ${preview.why_not}</p>`}
    ${preview?.possible &&
    html`<p><b>${preview.title}</b><br /><span class="faint">on the branch ${preview.branch}, ${plural(preview.files?.length ?? 0, "file")}</span></p>
      <${Patch} patch=${preview.patch ?? ""} />`}
  <//>`;
}

/** @param {Deciding} props */
function IgnoreDialog({ drift, moved, post, onClose, done }) {
  const [path, setPath] = useState(drift.entries.length === 1 ? (drift.entries[0]?.path ?? "") : "");
  const asked = { application: applicationLabel(drift.application), kind: drift.object.kind, namespace: drift.object.namespace, name: drift.object.name, path };
  const { value } = useRead((signal) => (path && !signal.aborted ? write("POST", inGitops("/ignore-rules/preview"), asked) : Promise.resolve(undefined)), [path]);
  const preview = /** @type {{ hides: { object: any, path: string }[], hides_count: number } | undefined} */ (value);
  /** @param {FormData} form */
  const send = async (form) => {
    await post("ignore", { reason: form.get("comment"), path, seconds: Number(form.get("seconds")), digest: drift.digest });
    done(null, "Ignored for a while: the rule ends by itself.");
  };
  return html`<${DecisionForm} title="Ignore for a while" action="Ignore" moved=${moved} send=${send} onClose=${onClose}>
    <label>Field<select name="path" value=${path} onChange=${(/** @type {any} */ event) => setPath(event.target.value)}>
      <option value="">every field of this drift</option>
      ${drift.entries.map((entry) => entry.path && html`<option key=${entry.path} value=${entry.path} selected=${entry.path === path}>${entry.path}</option>`)}
    </select></label>
    <${SpanField} />
    <${CommentField} label="Reason" required />
    <p class="faint">An ignored field is neither reported nor written. ${preview ? `As things are now, a rule for this field hides ${plural(preview.hides_count, "difference")}.` : ""}</p>
  <//>`;
}

/** @param {{ application: string, object?: Drift["object"], onClose: () => void, done: (word: string) => void }} props */
export function HoldDialog({ application, object, onClose, done }) {
  /** @param {FormData} form */
  const send = async (form) => {
    const end = String(form.get("end") ?? "");
    await write("POST", inGitops(`/applications/${applicationLabel(application)}/holds`), {
      reason: form.get("comment"),
      seconds: Number(form.get("seconds")),
      ...(end ? { end } : {}),
      ...(form.get("what") === "object" && object ? { object: objectKey(object) } : {}),
    });
    done("On hold: nothing is written to it until the hold ends.");
  };
  return html`<${FormDialog} title="Hold: write nothing for a while" action="Hold" send=${send} onClose=${onClose}>
    <label>What<select name="what">${object && html`<option value="object">${objectName(object)}</option>`}<option value="application">the whole application ${application}</option></select></label>
    <${SpanField} chosen=${4 * HOURS} />
    <label>When it ends<select name="end"><option value="">as the application says</option><option value="revert">put back what changed</option><option value="pull-request">propose what changed by a pull request</option></select></label>
    <${CommentField} label="Reason" required />
  <//>`;
}

/** @param {Deciding} props */
function ApproveDialog({ drift, moved, post, onClose, done }) {
  const send = async (/** @type {FormData} */ form) => {
    const after = await post("approve", { plan: drift.plan, comment: form.get("comment") });
    done(after, approvalWords(after));
  };
  return html`<${DecisionForm} title="Approve exactly this plan" action="Approve" moved=${moved} send=${send} onClose=${onClose}>
    <${CommentField} label="Why" required />
  <//>`;
}

/** @param {Deciding & { needsComment: boolean }} props */
function RevertDialog({ drift, moved, needsComment, post, onClose, done }) {
  const [via, setVia] = useState("direct");
  const send = async (/** @type {FormData} */ form) => {
    const after = await post("revert", { via, comment: form.get("comment"), digest: drift.digest });
    done(after, revertWords(after));
  };
  return html`<${DecisionForm} title="Revert: put the declared value back" action="Revert" moved=${moved} send=${send} onClose=${onClose}>
    <label>How<select name="via" value=${via} onChange=${(/** @type {any} */ event) => setVia(event.target.value)}><option value="direct">write it to the cluster</option><option value="pull-request">by a pull request whose merge decides</option></select></label>
    <${CommentField} label="Comment" required=${needsComment && via === "direct"} />
  <//>`;
}

/** @param {{ name: string, drift: Drift, moved: boolean, needsComment: boolean, reread: () => void, onClose: () => void, done: (after: Drift | null, word: string) => void }} props */
function DecisionDialog({ name, drift, moved, needsComment, reread, onClose, done }) {
  /** @type {Deciding["post"]} */
  const post = async (what, body) => {
    try {
      return await write("POST", inGitops(`/drifts/${drift.id}/${what}`), body);
    } catch (error) {
      reread();
      throw error;
    }
  };
  const deciding = { drift, moved, post, onClose, done };
  if (name === "approve") return html`<${ApproveDialog} ...${deciding} />`;
  if (name === "codify") return html`<${CodifyDialog} ...${deciding} />`;
  if (name === "ignore") return html`<${IgnoreDialog} ...${deciding} />`;
  if (name === "revert") return html`<${RevertDialog} ...${deciding} needsComment=${needsComment} />`;
  if (name === "hold") return html`<${HoldDialog} application=${drift.application} object=${drift.object} onClose=${onClose} done=${(/** @type {string} */ word) => done(null, word)} />`;
  if (name === "reject") {
    return html`<${DecisionForm} title="Reject: the live side stays" action="Reject" moved=${moved} onClose=${onClose}
      send=${async (/** @type {FormData} */ form) => done(await post("reject", { comment: form.get("comment"), digest: drift.digest }), "Rejected: it stays as it is, until it changes.")}>
      <${CommentField} label="Why" required />
    <//>`;
  }
  return html`<${DecisionForm} title="Snooze: be asked again later" action="Snooze" moved=${moved} onClose=${onClose}
    send=${async (/** @type {FormData} */ form) => done(await post("snooze", { seconds: Number(form.get("seconds")), comment: form.get("comment"), digest: drift.digest }), "Snoozed.")}>
    <${SpanField} /><${CommentField} label="Comment" />
  <//>`;
}

/** @param {{ drift: Drift }} props */
function Facts({ drift }) {
  const source = drift.links?.source;
  const pull = drift.links?.pull_request; // an address of the web; `url` may be anything
  const where = drift.where || "unknown";
  return html`<dl class="facts">
    <div><dt>State</dt><dd><${State} state=${drift.state} />${drift.until && !drift.resolved_at ? html`<span class="faint">, ends <${Until} at=${drift.until} /></span>` : ""}</dd></div>
    <div><dt>Kind</dt><dd><${Kinds} kinds=${drift.kinds} /></dd></div>
    <div><dt>Application</dt><dd><a href=${pathTo(project.value, "applications", applicationLabel(drift.application))}>${drift.application}</a></dd></div>
    <div><dt>Declared in</dt><dd>${source ? html`<a href=${source} rel="noreferrer" target="_blank"><code>${where}</code></a>` : html`<code>${where}</code>`} <span class="faint">at ${drift.commit.slice(0, 8)}</span></dd></div>
    <div><dt>First seen</dt><dd>${moment(drift.first_seen)} <span class="faint">(<${Age} at=${drift.first_seen} suffix=" ago" />)</span></dd></div>
    <div><dt>Route</dt><dd>${drift.route ? html`<b>${drift.route}</b>: it ${remediationWords(drift.remediation)}` : `none matched: it ${remediationWords(drift.remediation)}`}${drift.chosen_by ? `, as ${drift.chosen_by} chose` : ""}</dd></div>
    ${drift.plan && html`<div><dt>Plan</dt><dd><a href=${pathTo(project.value, "plans", planKey(drift.plan))}><code>${shortDigest(drift.plan)}</code></a></dd></div>`}
    ${drift.decided_by && html`<div><dt>Decided by</dt><dd>${drift.decided_by}${drift.comment ? `: “${drift.comment}”` : ""}</dd></div>`}
    ${drift.first_approver && !drift.decided_by && html`<div><dt>Approved once</dt><dd>by ${drift.first_approver}; it takes a second person</dd></div>`}
    ${(pull || drift.url) && html`<div><dt>Pull request</dt><dd>${pull ? html`<a href=${pull} rel="noreferrer" target="_blank">${pull}</a>` : drift.url}</dd></div>`}
    ${drift.resolved_at && html`<div><dt>Resolved</dt><dd>${moment(drift.resolved_at)}: ${resolutionWords(drift.resolution)}</dd></div>`}
  </dl>`;
}

/** @param {{ id: string }} props */
export function DriftScreen({ id }) {
  const [drift, setDrift] = useState(/** @type {Drift | null} */ (null));
  const [newer, setNewer] = useState(/** @type {Drift | null} */ (null));
  const [refused, setRefused] = useState(/** @type {import("./api.js").Failure | null} */ (null));
  const [choices, setChoices] = useState(/** @type {Choices | null} */ (null));
  const [journal, setJournal] = useState(/** @type {Journal | undefined} */ (undefined));
  const [failure, setFailure] = useState(/** @type {import("./api.js").Failure | null} */ (null));
  const [dialog, setDialog] = useState("");
  const [busy, setBusy] = useState(false);
  const shown = useRef(/** @type {Drift | null} */ (null));
  const title = useRef(/** @type {HTMLHeadingElement | null} */ (null));
  shown.current = drift;

  const readAll = async (/** @type {boolean} */ first) => {
    try {
      const [found, lines] = await Promise.all([
        read(inGitops(`/drifts/${encodeURIComponent(id)}`)).then((each) => /** @type {Drift} */ (each)),
        read(inGitops("/history"), { query: { subject: id, limit: 200 } }).then((each) => /** @type {Journal} */ (each)),
      ]);
      const before = shown.current;
      setJournal(lines);
      setFailure(null);
      // What is read stays as it was read: another version is shown when its reader asks for it.
      if (!first && before && before.id === found.id && identity(before) !== identity(found) && !found.resolved_at) {
        setNewer(found);
        announce("This drift changed since you read it.");
        return;
      }
      if (before && before.state !== found.state) announce(`${objectName(found.object)}: ${found.resolution ? resolutionWords(found.resolution) : found.state}`);
      setDrift(found);
      if (found.resolved_at) setNewer(null);
      else setChoices(await read(inGitops(`/drifts/${encodeURIComponent(id)}/choices`)));
    } catch (error) {
      setFailure(failureOf(error));
    }
  };
  useEffect(() => {
    setDrift(null);
    setNewer(null);
    setRefused(null);
    setChoices(null);
    setDialog("");
    shown.current = null;
    void readAll(true);
    /** @param {import("./types").ServerEvent} event */
    const concerns = (event) => event.event === "reset" || event.data?.id === id || (event.event === "hold" && event.data?.application === shown.current?.application);
    return afterEvents((events) => {
      if (events.some(concerns)) void readAll(false);
    });
  }, [id]);
  useEffect(() => {
    if (drift) title.current?.focus({ preventScroll: true });
  }, [drift?.id]);

  const done = (/** @type {Drift | null} */ after, /** @type {string} */ word) => {
    notify(word);
    if (after && drift) setDrift({ ...after, links: after.links ?? drift.links });
    setRefused(null);
    void readAll(true);
  };
  const approve = async () => {
    if (!drift?.plan || busy) return;
    setBusy(true);
    try {
      const after = /** @type {Drift} */ (await write("POST", inGitops(`/drifts/${id}/approve`), { plan: drift.plan }));
      done(after, approvalWords(after));
    } catch (error) {
      const failure = failureOf(error);
      setRefused(failure);
      announce(failure.code === STALE ? "The approval was refused. Nothing was approved." : `The approval was refused. ${failure.message}`);
      void readAll(false);
    } finally {
      setBusy(false);
    }
  };
  const readNewer = () => {
    if (newer) setDrift(newer);
    setNewer(null);
    setRefused(null);
    setChoices(null);
    void readAll(true);
    title.current?.focus();
  };
  const needsComment = (/** @type {string} */ name) => choices?.choices.find((each) => each.choice === name)?.needs_comment ?? false;
  const act = (/** @type {string} */ name) => {
    if (newer) return;
    if (name === "approve" && !needsComment(name)) void approve();
    else setDialog(name);
  };
  const link = location.origin + pathTo(project.value, "drifts", id);
  const command = drift?.state === "awaiting-approval" && drift.plan ? `holdfast approve ${id} --plan-digest ${drift.plan}` : `holdfast drift show ${id}`;
  const open = (choices && !newer && choices.drift === drift?.id ? choices.choices : [])
    .filter((each) => CHOICES[each.choice])
    .toSorted((a, b) => Number(b.allowed) - Number(a.allowed));
  const keys = Object.fromEntries(
    open.filter((each) => each.allowed).map((each) => [CHOICES[each.choice]?.[0] ?? "", (/** @type {KeyboardEvent} */ event) => !event.repeat && act(each.choice)]),
  );
  const beside = (/** @type {1 | -1} */ step) => {
    const pages = lastPages();
    const next = pages?.beside(id, step);
    if (next && pages) {
      pages.active = next.id;
      go(pathTo(project.value, "drifts", next.id), { replace: true });
      scrollTo(0, 0);
    } else notify(step > 0 ? "That was the last one." : "That was the first one.", "quiet");
  };
  useKeys({
    s: toggleSplit,
    y: () => void copyText(drift?.links?.page ?? link, "the link"),
    e: () => void copyText(command, "the command"),
    j: () => beside(1),
    k: () => beside(-1),
    u: () => go(pathTo(project.value, "inbox", "", lastPages()?.question ?? {})),
    ...(newer ? { Enter: readNewer } : {}),
    ...(dialog ? {} : keys),
  });

  if (failure && !drift) return html`<main><h1>Drift</h1><${Problem} failure=${failure} retry=${() => readAll(true)} /></main>`;
  if (!drift) return html`<main><h1>Drift</h1><p class="loading">Reading …</p></main>`;
  const none = open.length > 0 && !open.some((each) => each.allowed);
  return html`<main class="drift">
    <p class="crumbs"><a href=${pathTo(project.value, "inbox", "", lastPages()?.question ?? {})}>Inbox</a> <kbd>u</kbd> / <code>${drift.id}</code></p>
    <h1 ref=${title} tabindex="-1">${driftSentence(drift)}</h1>
    <${Facts} drift=${drift} />
    ${drift.note && html`<p class="note">${drift.note}</p>`}
    ${newer &&
    html`<div class="problem moved" role="alert">
      <p><b>This drift changed since you read it.</b> ${refused?.code === STALE ? "Nothing was approved. " : newer.note !== drift.note ? newer.note + " " : ""}What moved:</p>
      <ul>${moved(drift, newer).map((each) => html`<li key=${each}>${each}</li>`)}</ul>
      <p><button type="button" class="primary" onClick=${readNewer}>Show it as it is now <kbd>↵</kbd></button></p>
    </div>`}
    ${refused && !newer && html`<${Problem} failure=${refused} />`}
    ${failure && html`<${Problem} failure=${failure} retry=${() => readAll(false)} />`}
    <div class="columns">
      <section aria-labelledby="differs"><h2 id="differs">What differs</h2>
        <${DiffBar} />
        ${drift.entries.map((entry) => html`<${FieldDiff} key=${entry.path} entry=${entry} ...${entry.path ? {} : { sides: wholeSides(Boolean(drift.uid), Boolean(drift.where)) }} />`)}
      </section>
      <div>
        ${
          !drift.resolved_at &&
          html`<section aria-labelledby="choices"><h2 id="choices">What you can do</h2>
            ${!choices && !newer && html`<p class="loading">Reading …</p>`}
            ${newer && html`<p class="faint">Read what moved first.</p>`}
            ${none && html`<p class="faint">${may("approve") || may("write") ? "Nothing can be decided now." : `${me.value?.name ?? "You"} may read here, and decide nothing.`}</p>`}
            <table class="choices"><tbody>${open.map((each) => {
              const [key, word] = CHOICES[each.choice] ?? ["", each.choice];
              return html`<${ChoiceRow} key=${each.choice} choice=${each} keyName=${key} word=${word} act=${() => act(each.choice)} />`;
            })}</tbody></table>
            ${drift.plan && drift.state === "awaiting-approval" && html`<p class="faint">An approval counts for the plan <code title=${drift.plan}>${shortDigest(drift.plan)}</code> and for no other.</p>`}
          </section>`
        }
        <section aria-labelledby="timeline"><h2 id="timeline">What happened</h2><${Timeline} journal=${journal} /></section>
        <p class="actions">
          <button type="button" class="small" onClick=${() => copyText(drift.links?.page ?? link, "the link")}>Copy link <kbd>y</kbd></button>
          <button type="button" class="small" onClick=${() => copyText(command, "the command")}>Copy as command <kbd>e</kbd></button>
          <button type="button" class="small" onClick=${() => beside(-1)}>Previous <kbd>k</kbd></button>
          <button type="button" class="small" onClick=${() => beside(1)}>Next <kbd>j</kbd></button>
        </p>
      </div>
    </div>
    ${dialog && html`<${DecisionDialog} name=${dialog} drift=${drift} moved=${newer !== null} needsComment=${needsComment(dialog)} reread=${() => void readAll(false)} onClose=${() => setDialog("")} done=${done} />`}
  </main>`;
}

/**
 * Names the fields as they were read when it was opened; the plan that it sends is of that moment.
 * @param {{ drift: import("./types").WorkloadDrift, moved: boolean, reread: () => void, onClose: () => void }} props
 */
function PutBackDialog({ drift, moved, reread, onClose }) {
  const send = async () => {
    try {
      await write("POST", inProject(`/drift/${encodeURIComponent(drift.id)}/revert`), { plan: drift.revert?.plan });
    } finally {
      reread();
    }
    notify("It is written as it was declared.");
  };
  /** @param {unknown} value */
  const short = (value) => valueText(value).split("\n")[0]?.slice(0, 60) || "not set";
  return html`<${DecisionForm} title="Put back what was declared" action="Put back" moved=${moved} send=${send} onClose=${onClose}>
    <ul>${drift.fields.map((entry) => html`<li key=${entry.path}><code>${entry.path}</code>: ${short(entry.live)} → ${short(entry.desired)}</li>`)}</ul>
    <p>${sentenceCase(costWords(drift.cost, "replica"))}.</p>
  <//>`;
}

/** A drift of a workload: written as it was declared by who may, or declared again by its owner. @param {{ id: string }} props */
export function WorkloadDriftScreen({ id }) {
  const { value, failure, reload } = useRead((signal) => read(inProject(`/drift/${encodeURIComponent(id)}`), { signal }), [project.value, id]);
  const drift = /** @type {import("./types").WorkloadDrift | undefined} */ (value);
  useEffect(() => afterEvents(reload), []);
  const [asked, setAsked] = useState(/** @type {typeof drift | null} */ (null));
  const choice = drift?.resolved_at ? undefined : drift?.revert;
  const ask = () => setAsked(drift ?? null);
  useKeys({
    s: toggleSplit,
    y: () => void copyText(location.origin + location.pathname, "the link"),
    ...(choice?.allowed && !asked ? { r: (/** @type {KeyboardEvent} */ event) => !event.repeat && ask() } : {}),
  });
  if (failure) return html`<main><h1>Drift</h1><${Problem} failure=${failure} retry=${reload} /></main>`;
  if (!drift) return html`<main><h1>Drift</h1><p class="loading">Reading …</p></main>`;
  return html`<main class="drift">
    <p class="crumbs"><a href=${pathTo(project.value, "inbox")}>Inbox</a> / <code>${drift.id}</code></p>
    <h1>Workload ${drift.slug} differs from its declaration in ${plural(drift.fields.length, "field")}.</h1>
    <dl class="facts">
      <div><dt>State</dt><dd><${State} state=${drift.resolved_at ? "resolved" : "detected"} /></dd></div>
      <div><dt>Kind</dt><dd><${Kinds} kinds=${drift.kinds} /></dd></div>
      <div><dt>Workload</dt><dd><a href=${pathTo(project.value, "workloads", drift.slug)}>${drift.slug}</a></dd></div>
      <div><dt>First seen</dt><dd>${moment(drift.first_seen)}</dd></div>
      ${
        drift.resolved_at
          ? html`<div><dt>Resolved</dt><dd>${moment(drift.resolved_at)}: ${drift.resolution}</dd></div>`
          : html`<div><dt>To put it back</dt><dd>${sentenceCase(costWords(drift.cost, "replica"))}.</dd></div>`
      }
    </dl>
    <section aria-labelledby="differs"><h2 id="differs">What differs</h2><${DiffBar} right="Declared" />
      ${drift.fields.map((entry) => html`<${FieldDiff} key=${entry.path} entry=${entry} right="Declared" />`)}</section>
    ${
      choice &&
      html`<section aria-labelledby="choices"><h2 id="choices">What you can do</h2>
        <table class="choices"><tbody><${ChoiceRow} choice=${{ ...choice, choice: "revert", cost: drift.cost }} keyName="r" word="Put back" act=${ask} /></tbody></table></section>`
    }
    ${!drift.resolved_at && html`<p class="note">${choice ? "Its owner can also declare it again:" : "Its owner puts it back by declaring it again:"} <code>ensure(spec)</code>, or <code>holdfast ensure -f FILE</code>. To keep it, declare the live value.</p>`}
    ${asked && html`<${PutBackDialog} drift=${asked} moved=${asked.revert?.plan !== choice?.plan} reread=${reload} onClose=${() => setAsked(null)} />`}
  </main>`;
}

