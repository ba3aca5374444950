/** History: who decided what, how long things were open, and why. */

import { html, useEffect, useState } from "./vendor/preact.js";
import { has, inGitops, inProject, project, read } from "./api.js";
import { afterEvents } from "./live.js";
import { Problem, useRead } from "./parts.js";
import { pathTo, route, setQuery } from "./route.js";
import { causeWords, duration, moment, plural, resolutionWords, sentenceCase } from "./words.js";

/** @typedef {import("./types").Statistics} Statistics */
/** @typedef {import("./types").Bucket} Bucket */
/** @typedef {import("./types").JournalLine} JournalLine */

const DAYS = ["1", "7", "30", "90"];

/** @param {{ title: string, buckets: Bucket[] | undefined, words?: (key: string) => string }} props */
function Bars({ title, buckets, words = (key) => key }) {
  if (!buckets?.length) return null;
  const most = Math.max(...buckets.map((each) => each.count), 1);
  return html`<section class="bars"><h2>${title}</h2><table><tbody>${buckets.slice(0, 8).map(
    (each) => html`<tr key=${each.key}><th scope="row">${words(each.key) || "unknown"}</th>
      <td><meter min="0" max=${most} value=${each.count} aria-hidden="true"></meter></td>
      <td class="number">${each.count.toLocaleString("en")}</td>
      <td class="number faint">${duration(each.seconds)}</td></tr>`,
  )}</tbody></table></section>`;
}

/** @param {{ label: string, value: string, note?: string }} props */
function Figure({ label, value, note }) {
  return html`<div class="figure"><dt>${label}</dt><dd>${value}${note && html`<small>${note}</small>`}</dd></div>`;
}

/** @param {{ days: string }} props */
function Figures({ days }) {
  const since = new Date(Math.floor(Date.now() / 60_000) * 60_000 - Number(days) * 86_400_000).toISOString().replace(".000Z", "Z");
  const { value, failure, reload } = useRead((signal) => read(inGitops("/statistics"), { query: { since }, signal }), [project.value, days]);
  useEffect(() => afterEvents(reload, 5_000), []); // seldom: people read them, and nobody acts on them at once
  const found = /** @type {Statistics | undefined} */ (value);
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!found) return html`<p class="loading">Counting …</p>`;
  const times = found.time_to_resolve;
  const known = (/** @type {number | undefined | null} */ seconds) => (seconds === undefined || seconds === null ? "–" : duration(seconds));
  return html`<div>
    <dl class="figures">
      <${Figure} label="Drifts" value=${found.drifts.toLocaleString("en")} note=${`${found.open.toLocaleString("en")} open now`} />
      <${Figure} label="Time drifted" value=${duration(found.drift_seconds)} note="all drifts together" />
      <${Figure} label="Time to resolve" value=${known(times?.p50)} note=${times?.count ? `half of ${plural(times.count, "drift")}` : "none ended in this time"} />
      <${Figure} label="Slowest tenth" value=${known(times?.p90)} note=${times?.count ? "took longer than this" : ""} />
    </dl>
    <div class="tiles">
      <${Bars} title="By cause" buckets=${found.by_cause} words=${causeWords} />
      <${Bars} title="By writer" buckets=${found.by_writer} />
      <${Bars} title="By kind" buckets=${found.by_kind} />
      <${Bars} title="By how they ended" buckets=${found.by_resolution} words=${(/** @type {string} */ key) => resolutionWords(key) || key} />
      <${Bars} title="By application" buckets=${found.by_application} />
      ${found.decisions?.length ? html`<section class="bars decisions"><h2 id="decided">Who decided</h2><div class="scroller" tabindex="0" role="region" aria-labelledby="decided"><table class="lines"><thead><tr><th scope="col">Who</th><th scope="col" class="number">Approved</th><th scope="col" class="number">Rejected</th><th scope="col" class="number">Codified</th><th scope="col" class="number">Reverted</th><th scope="col" class="number">Snoozed</th></tr></thead><tbody>${found.decisions.map(
        (each) => html`<tr key=${each.actor}><th scope="row">${each.actor}</th>${[each.approved, each.rejected, each.codified, each.reverted, each.snoozed].map((count, index) => html`<td key=${index} class="number">${count || "–"}</td>`)}</tr>`,
      )}</tbody></table></div></section>` : ""}
    </div>
  </div>`;
}

/** @param {string} subject */
function subjectPath(subject) {
  if (subject.startsWith("drf-")) return pathTo(project.value, "drifts", subject);
  if (subject.startsWith("plan-")) return pathTo(project.value, "plans", subject);
  return "";
}

/** @param {{ rows: { seq: number, at: string, where: string, href: string, action: string, actor: string, summary: string }[] }} props */
function Lines({ rows }) {
  return html`<div class="scroller" tabindex="0" role="region" aria-label="Lines of the journal"><table class="lines journal"><thead><tr><th scope="col">When</th><th scope="col">What</th><th scope="col">Who</th><th scope="col">Of</th><th scope="col">Summary</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.seq}><td class="nowrap">${moment(row.at)}</td><td>${sentenceCase(row.action)}</td><td>${row.actor}</td><td>${row.href ? html`<a href=${row.href}>${row.where}</a>` : row.where}</td><td>${row.summary}</td></tr>`)}</tbody></table></div>`;
}

function JournalLines() {
  const [older, setOlder] = useState(/** @type {JournalLine[]} */ ([]));
  const [next, setNext] = useState(/** @type {number | null | undefined} */ (null));
  const { value, failure, reload } = useRead((signal) => read(inGitops("/history"), { query: { limit: 100 }, signal }), [project.value]);
  useEffect(() => afterEvents(reload, 500), []);
  const journal = /** @type {import("./types").Journal | undefined} */ (value);
  const from = next === null ? journal?.next : next;
  const more = async () => {
    const page = /** @type {import("./types").Journal} */ (await read(inGitops("/history"), { query: { limit: 100, before: from } }));
    setOlder((before) => [...before, ...page.entries]);
    setNext(page.next);
  };
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!journal) return html`<p class="loading">Reading …</p>`;
  const seen = new Set();
  const rows = [...journal.entries, ...older].filter((each) => !seen.has(each.seq) && seen.add(each.seq));
  return html`<div>
    <${Lines} rows=${rows.map((each) => ({ ...each, where: each.subject || each.application, href: subjectPath(each.subject ?? "") }))} />
    ${from && html`<p class="actions"><button type="button" onClick=${more}>Older lines</button></p>`}
  </div>`;
}

function WorkloadLines() {
  const { value, failure, reload } = useRead((signal) => read(inProject("/history"), { query: { limit: 200 }, signal }), [project.value]);
  useEffect(() => afterEvents(reload, 500), []);
  const rows = /** @type {{ history: import("./types").HistoryRow[] } | undefined} */ (value)?.history;
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!rows) return html`<p class="loading">Reading …</p>`;
  return html`<${Lines} rows=${rows.map((row) => ({ ...row, actor: row.writer.actor ?? row.writer.manager, where: row.slug || "the project", href: row.slug ? pathTo(project.value, "workloads", row.slug) : "" }))} />`;
}

export function History() {
  const days = route.value.query.get("days") ?? "7";
  const applications = has("applications");
  return html`<main><h1>History</h1>
    ${
      applications &&
      html`<p class="tabs">${DAYS.map((each) => html`<button key=${each} type="button" class=${each === days ? "small chosen" : "small"} aria-pressed=${each === days ? "true" : "false"} onClick=${() => setQuery({ days: each === "7" ? "" : each })}>${each === "1" ? "1 day" : `${each} days`}</button>`)}</p>
      <${Figures} key=${days} days=${days} />
      <h2>Journal</h2>
      <p class="actions"><a href=${inGitops("/export")} download="drifts.jsonl">Export drifts</a> <a href=${inGitops("/export") + "?what=journal"} download="journal.jsonl">Export the journal</a></p>
      <${JournalLines} />`
    }
    ${has("workloads") && html`<h2>Workloads</h2><${WorkloadLines} />`}
  </main>`;
}
