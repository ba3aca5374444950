/** Workloads of the control plane: how each is doing; and one of them, with a prompt that streams. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { api, failureOf, has, inProject, isAborted, may, project, read } from "./api.js";
import { useKeys } from "./keys.js";
import { afterEvents, whileShown } from "./live.js";
import { Age, copyText, Empty, Grid, Kinds, Problem, State, useRead } from "./parts.js";
import { pathTo } from "./route.js";
import { moment, plural, sentenceCase } from "./words.js";

/** @typedef {import("./types").Workload} Workload */
/** @typedef {import("./types").WorkloadDrift} WorkloadDrift */

/** @param {Workload} workload */
function replicas(workload) {
  const status = workload.status;
  return status ? `${status.ready ?? 0} of ${status.wanted ?? 0} ready` : "unknown";
}

/** @param {string} slug */
const at = (slug) => inProject(`/workloads/${encodeURIComponent(slug)}`);

export function Workloads() {
  const { value, failure, reload } = useRead((signal) => read(inProject("/workloads"), { signal }), [project.value]);
  const drifts = useRead((signal) => read(inProject("/drift"), { signal }), [project.value]);
  useEffect(() => afterEvents(() => (reload(), drifts.reload()), 400), []);
  const list = /** @type {{ workloads: Workload[] } | undefined} */ (value)?.workloads;
  const drifted = new Set((/** @type {{ drifts: WorkloadDrift[] } | undefined} */ (drifts.value)?.drifts ?? []).map((each) => each.slug));
  /** @param {Workload} each @param {string} column */
  const show = (each, column) => {
    switch (column) {
      case "name":
        return html`<a href=${pathTo(project.value, "workloads", each.slug)} tabindex="-1">${each.slug}</a>`;
      case "phase":
        return html`<${State} state=${each.status?.phase ?? "unknown"} />`;
      case "engine":
        return each.backend;
      case "model":
        return html`<span title=${each.model_name}>${each.model_name}</span>`;
      case "replicas":
        return replicas(each) + (each.status?.canary_weight ? `, canary ${each.status.canary_weight} %` : "");
      case "drift":
        return html`<${State} state=${drifted.has(each.slug) ? "drifted" : "in-sync"} />`;
      default:
        return html`<${Age} at=${each.updated_at} suffix=" ago" />`;
    }
  };
  if (failure && !list) return html`<main><h1>Workloads</h1><${Problem} failure=${failure} retry=${reload} /></main>`;
  return html`<main><h1>Workloads ${list && html`<span class="count">${list.length}</span>`}</h1>
    ${!list && html`<p class="loading">Reading …</p>`}
    ${list?.length === 0 && html`<${Empty}>No workload is declared in this project. Declare one with <code>ensure(spec)</code>, or <code>holdfast ensure -f FILE</code>.<//>`}
    ${list && list.length > 0 && html`<${Grid} label="Workloads" name="workloads" rows=${list} rowKey=${(/** @type {Workload} */ each) => each.slug} cell=${show}
      href=${(/** @type {Workload} */ each) => pathTo(project.value, "workloads", each.slug)}
      columns=${[["name", "Workload"], ["phase", "Phase"], ["engine", "Engine"], ["model", "Model"], ["replicas", "Replicas"], ["drift", "Drift"], ["age", "Changed"]]} />`}
  </main>`;
}

/** @param {{ slug: string, phase: string }} props each step on the way to readiness, as it comes */
function Readiness({ slug, phase }) {
  const [steps, setSteps] = useState(/** @type {import("./types").Progress[]} */ ([]));
  useEffect(() => {
    if (phase === "ready" || phase === "error") return undefined;
    const ended = new AbortController();
    /** @param {AbortSignal} shown */
    const listen = async (shown) => {
      setSteps([]);
      try {
        for await (const event of api.stream("GET", at(slug) + "/readiness-events", { signal: shown })) {
          if (event.data?.phase) setSteps((before) => [...before.filter((each) => each.message !== event.data.message), event.data].slice(-8));
        }
      } catch (error) {
        if (!isAborted(error) && !shown.aborted) failureOf(error);
      }
    };
    whileShown((shown) => void listen(shown), ended.signal);
    return () => ended.abort();
  }, [slug, phase === "ready" || phase === "error"]);
  if (!steps.length || phase === "error") return null;
  return html`<ol class="timeline" aria-label="On the way to readiness">${steps.map((step, index) => html`<li key=${index}><span>${(step.elapsed_ms / 1000).toFixed(1)} s</span><span><b>${sentenceCase(step.phase)}</b> ${step.message}</span></li>`)}</ol>`;
}

/** @param {{ slug: string }} props */
function Prompt({ slug }) {
  const [answer, setAnswer] = useState("");
  const [said, setSaid] = useState("");
  const [failure, setFailure] = useState(/** @type {import("./api.js").Failure | null} */ (null));
  const running = useRef(/** @type {AbortController | null} */ (null));
  const [busy, setBusy] = useState(false);
  const form = useRef(/** @type {HTMLFormElement | null} */ (null));
  useEffect(() => () => running.current?.abort(), [slug]);
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    const text = String(new FormData(/** @type {HTMLFormElement} */ (form.current)).get("prompt") ?? "").trim();
    if (!text || busy) return;
    const ended = new AbortController();
    running.current = ended;
    setBusy(true);
    setAnswer("");
    setSaid("");
    setFailure(null);
    const began = performance.now();
    let whole = "";
    try {
      const body = { messages: [{ role: "user", content: text }], max_tokens: 512 };
      for await (const { data } of api.stream("POST", at(slug) + "/prompt", { body, signal: ended.signal })) {
        if (data?.text) setAnswer((whole += data.text));
        if (data?.error) throw new Error(data.error);
        if (data?.done) {
          const tokens = data.usage?.completion_tokens;
          setSaid([`${((performance.now() - began) / 1000).toFixed(1)} s`, tokens && plural(tokens, "token"), data.finish_reason && `ended: ${data.finish_reason}`].filter(Boolean).join(", "));
        }
      }
    } catch (error) {
      if (ended.signal.aborted) setSaid("Stopped.");
      else setFailure(failureOf(error));
    } finally {
      setBusy(false);
    }
  };
  return html`<section aria-labelledby="ask"><h2 id="ask">Ask it</h2>
    <form ref=${form} class="prompt" onSubmit=${submit}>
      <label>Prompt<textarea name="prompt" rows="3" maxlength="20000" required placeholder="Ctrl-Enter sends it through the data plane"
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && void submit(event)}></textarea></label>
      <p class="actions"><button type="submit" class="primary" disabled=${busy}>${busy ? "Answering …" : "Send"} <kbd>Ctrl ↵</kbd></button>
        ${busy && html`<button type="button" onClick=${() => running.current?.abort()}>Stop</button>`}<span class="faint">${said}</span></p>
    </form>
    ${(answer || busy) && html`<div class="answer" role="log" aria-label="Answer" aria-busy=${busy ? "true" : "false"}>${answer}${busy && html`<span class="caret" aria-hidden="true">▍</span>`}</div>`}
    ${failure && html`<${Problem} failure=${failure} />`}
  </section>`;
}

/** @param {{ slug: string }} props */
function Logs({ slug }) {
  const [lines, setLines] = useState(/** @type {string[] | null} */ (null));
  const [failure, setFailure] = useState(/** @type {import("./api.js").Failure | null} */ (null));
  const place = useRef(/** @type {HTMLPreElement | null} */ (null));
  useEffect(() => {
    const ended = new AbortController();
    /** @type {string[]} */
    let gathered = [];
    let timer = 0;
    /** @param {AbortSignal} shown */
    const listen = async (shown) => {
      gathered = [];
      let begun = false;
      try {
        for await (const line of api.lines(at(slug) + "/logs", { query: { tail: 200, follow: true }, signal: shown })) {
          gathered.push(line);
          timer ||= setTimeout(() => {
            timer = 0;
            const before = begun;
            const more = gathered;
            begun = true;
            gathered = [];
            setLines((lines) => [...(before ? (lines ?? []) : []), ...more].slice(-500));
          }, 100);
        }
      } catch (error) {
        if (!shown.aborted && !isAborted(error)) setFailure(failureOf(error));
      }
    };
    whileShown((shown) => void listen(shown), ended.signal);
    const quiet = setTimeout(() => setLines((before) => before ?? []), 1500);
    return () => {
      ended.abort();
      clearTimeout(timer);
      clearTimeout(quiet);
    };
  }, [slug]);
  useEffect(() => {
    if (place.current) place.current.scrollTop = place.current.scrollHeight;
  }, [lines]);
  if (failure) return html`<${Problem} failure=${failure} />`;
  return html`<pre class="logs" ref=${place} tabindex="0" aria-label="Log">${lines === null ? "Reading …" : lines.length ? lines.join("\n") : "It has written nothing yet."}</pre>`;
}

/** @param {{ slug: string }} props */
export function WorkloadScreen({ slug }) {
  const { value, failure, reload } = useRead((signal) => read(at(slug), { signal }), [project.value, slug]);
  const drifts = useRead((signal) => read(inProject("/drift"), { query: { slug }, signal }), [project.value, slug]);
  const history = useRead((signal) => read(inProject("/history"), { query: { slug, limit: 30 }, signal }), [project.value, slug]);
  useEffect(() => afterEvents(() => (reload(), drifts.reload(), history.reload())), [slug]);
  const workload = /** @type {Workload | undefined} */ (value);
  const status = workload?.status;
  const busy = status && status.phase !== "ready" && status.phase !== "error";
  useEffect(() => {
    // What a replica does is no change of the workload, so it is asked while it comes up.
    if (!busy) return undefined;
    let pause = 1500; // and longer each time, as what takes minutes needs no look each second
    const ask = () => {
      if (!document.hidden) reload();
      pause = Math.min(pause * 1.2, 15_000);
      timer = setTimeout(ask, pause);
    };
    let timer = setTimeout(ask, pause);
    return () => clearTimeout(timer);
  }, [busy]);
  useKeys({ y: () => void copyText(location.origin + location.pathname, "the link"), e: () => void copyText(`holdfast status ${slug}`, "the command") });
  if (failure && !workload) return html`<main><h1>Workload</h1><${Problem} failure=${failure} retry=${reload} /></main>`;
  if (!workload) return html`<main><h1>Workload</h1><p class="loading">Reading …</p></main>`;
  const open = /** @type {{ drifts: WorkloadDrift[] } | undefined} */ (drifts.value)?.drifts ?? [];
  const rows = /** @type {{ history: import("./types").HistoryRow[] } | undefined} */ (history.value)?.history ?? [];
  const endpoint = status?.endpoint;
  return html`<main>
    <p class="crumbs"><a href=${pathTo(project.value, "workloads")}>Workloads</a> /</p>
    <h1>${workload.slug} <${State} state=${status?.phase ?? "unknown"} /></h1>
    ${status?.message && !status.failed?.some((each) => status.message?.includes(each.reason)) && html`<p class="note">${status.message}</p>`}
    ${status?.suspended && html`<p class="note">Suspended: ${status.suspended}</p>`}
    <dl class="facts">
      <div><dt>Engine</dt><dd>${workload.backend}</dd></div>
      <div><dt>Model</dt><dd class="wrap">${workload.model_name}</dd></div>
      <div><dt>Replicas</dt><dd>${replicas(workload)}${status?.canary_weight ? `, canary takes ${status.canary_weight} %` : ""}</dd></div>
      <div><dt>Generation</dt><dd>${workload.generation ?? "unknown"}<span class="faint">, changed <${Age} at=${workload.updated_at} suffix=" ago" /></span></dd></div>
      <div><dt>Drift</dt><dd>${open.length ? open.map((each) => html`<span key=${each.id}><a href=${pathTo(project.value, "workload-drifts", each.id)}><${State} state="drifted" word=${plural(each.fields.length, "field")} /></a> <${Kinds} kinds=${each.kinds} /></span>`) : html`<${State} state="in-sync" />`}</dd></div>
      ${endpoint && html`<div><dt>Answers at</dt><dd class="wrap"><code>${endpoint}</code> <button type="button" class="small" onClick=${() => copyText(endpoint, "the address")}>Copy</button></dd></div>`}
    </dl>
    ${(status?.failed ?? []).map((each) => html`<div key=${each.name} class="problem"><p><b>${each.name} failed.</b> ${each.reason}</p></div>`)}
    ${(status?.runtime ?? []).map((each) => html`<div key=${each.pod + each.field} class="problem"><p><b>${each.pod} serves another ${each.field}.</b> Declared ${each.declared ?? "nothing"}, served ${each.served ?? "unknown"}.</p></div>`)}
    <${Readiness} slug=${slug} phase=${status?.phase ?? ""} />
    ${has("data-plane") && (may("write") ? html`<${Prompt} slug=${slug} />` : html`<p class="faint">To ask it something from here takes the scope write.</p>`)}
    <section><h2>Log</h2><${Logs} slug=${slug} /></section>
    <section><h2>Declaration</h2><table class="plain"><tbody>${Object.entries(workload.spec ?? {}).map(
      ([name, field]) => html`<tr key=${name}><th scope="row"><code>${name}</code></th><td class="wrap"><code>${typeof field === "string" ? field : JSON.stringify(field)}</code></td><td class="faint">${workload.writers?.[name] ? `by ${workload.writers[name]?.actor ?? workload.writers[name]?.manager}` : ""}</td></tr>`,
    )}</tbody></table></section>
    <section><h2>What happened</h2><ol class="timeline">${rows.toReversed().map((row) => html`<li key=${row.seq}><time datetime=${row.at}>${moment(row.at)}</time><span><b>${sentenceCase(row.action)}</b> by ${row.writer.actor ?? row.writer.manager}<br />${row.summary}</span></li>`)}</ol></section>
  </main>`;
}
