/** Me: what I may do, where I am signed in, and what answers here. Login: how one gets in. */

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { api, failureOf, inProject, may, me, project, read, write } from "./api.js";
import { Age, notify, Problem, useRead } from "./parts.js";
import { go, pathTo, route, safeNext } from "./route.js";
import { moment } from "./words.js";

/** @typedef {import("./types").Me} MeForm */

const THEME = "holdfast-theme";

/** Follow the system, or what was chosen here. */
export function applyTheme() {
  const chosen = localStorage.getItem(THEME) ?? "";
  document.documentElement.dataset.theme = chosen;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem(THEME) ?? "");
  /** @param {string} next */
  const choose = (next) => {
    if (next) localStorage.setItem(THEME, next);
    else localStorage.removeItem(THEME);
    setTheme(next);
    applyTheme();
  };
  return html`<p class="tabs">${[["", "As the system"], ["light", "Light"], ["dark", "Dark"]].map(([name = "", word]) => html`<button key=${name} type="button" class=${name === theme ? "small chosen" : "small"} aria-pressed=${name === theme ? "true" : "false"} onClick=${() => choose(name)}>${word}</button>`)}</p>`;
}

export async function logOut() {
  try {
    await write("DELETE", "/api/sessions/current");
  } catch (error) {
    if (failureOf(error).status !== 401) {
      notify(failureOf(error).message, "bad");
      return;
    }
  }
  me.value = null;
  go("/ui/login");
}

function Sessions() {
  const { value, failure, reload } = useRead((signal) => read("/api/sessions", { signal }), []);
  const sessions = /** @type {{ sessions: import("./types").Session[] } | undefined} */ (value)?.sessions;
  /** @param {string} id */
  const end = async (id) => {
    try {
      await write("DELETE", `/api/sessions/${encodeURIComponent(id)}`);
      notify("That session ended.");
      reload();
    } catch (error) {
      notify(failureOf(error).message, "bad");
    }
  };
  if (failure) return html`<${Problem} failure=${failure} retry=${reload} />`;
  if (!sessions) return html`<p class="loading">Reading …</p>`;
  return html`<div class="scroller" tabindex="0" role="region" aria-label="Sessions"><table class="lines"><thead><tr><th scope="col">Where</th><th scope="col">From</th><th scope="col">Began</th><th scope="col">Last seen</th><th scope="col">Ends</th><th scope="col"><span class="unseen">End it</span></th></tr></thead>
    <tbody>${sessions.map(
      (each) => html`<tr key=${each.id}><td>${each.agent || "unknown"}${each.current ? html` <b>(this one)</b>` : ""}</td><td>${each.peer || "unknown"}</td><td class="nowrap">${moment(each.created_at)}</td><td><${Age} at=${each.last_seen} suffix=" ago" /></td><td class="nowrap">${moment(each.expires_at) || "with its token"}</td>
        <td>${each.current ? html`<button type="button" class="small" onClick=${logOut}>Sign out</button>` : html`<button type="button" class="small" onClick=${() => end(each.id)}>End</button>`}</td></tr>`,
    )}</tbody></table></div>`;
}

function Tokens() {
  const { value, failure } = useRead((signal) => read(inProject("/tokens"), { signal }), [project.value]);
  const tokens = /** @type {{ tokens: { id: string, kind: string, name: string, scopes: string[], created_at: string, expires_at?: string, revoked_at?: string }[] } | undefined} */ (value)?.tokens;
  if (failure) return html`<${Problem} failure=${failure} />`;
  if (!tokens) return html`<p class="loading">Reading …</p>`;
  return html`<div class="scroller" tabindex="0" role="region" aria-label="Tokens"><table class="lines"><thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Scopes</th><th scope="col">Made</th><th scope="col">Ends</th></tr></thead>
    <tbody>${tokens.map((each) => html`<tr key=${each.id}><td>${each.name}</td><td>${each.kind === "live" ? "data key" : "control"}</td><td>${each.scopes.join(", ") || "–"}</td><td class="nowrap">${moment(each.created_at)}</td><td class="nowrap">${each.revoked_at ? `revoked ${moment(each.revoked_at)}` : moment(each.expires_at) || "when it is revoked"}</td></tr>`)}</tbody></table></div>`;
}

export function MeScreen() {
  const who = me.value;
  if (!who) return null;
  return html`<main><h1>${who.name}</h1>
    <dl class="facts">
      <div><dt>Signed in</dt><dd>${who.kind === "person" ? "as a person" : "by a token"}${who.email ? `, ${who.email}` : ""}</dd></div>
      ${who.issuer && html`<div><dt>Known by</dt><dd class="wrap">${who.issuer} <span class="faint">${who.subject}</span></dd></div>`}
      ${who.token && html`<div><dt>Token</dt><dd>${who.token.name} <code>${who.token.id}</code>${who.token.expires_at ? html` <span class="faint">ends ${moment(who.token.expires_at)}</span>` : ""}</dd></div>`}
      ${who.projects.map((each) => html`<div key=${each.project}><dt>${each.project}</dt><dd>${each.scopes.join(", ")}</dd></div>`)}
      <div><dt>Server</dt><dd>Holdfast ${who.server.version}${who.server.target ? `, ${who.server.target}` : ""} <span class="faint">${who.server.features.join(", ")}</span></dd></div>
    </dl>
    <p class="actions"><button type="button" onClick=${logOut}>Sign out</button></p>
    <h2>Sessions</h2><${Sessions} />
    ${may("admin") && html`<h2>Tokens of ${project.value}</h2><${Tokens} />`}
    <h2>Colours</h2><${Theme} />
  </main>`;
}

/** Ask who is signed in. */
export async function readMe() {
  try {
    me.value = /** @type {MeForm} */ (await api.get("/api/me"));
  } catch (error) {
    const failure = failureOf(error);
    if (failure.status === 401) me.value = null;
    else throw error;
  }
}

/** @type {Record<string, string>} why a sign-in elsewhere led to nothing */
const REFUSALS = {
  login_expired: "The sign-in took too long, or was begun in another browser. Try it again.",
  login_refused: "The sign-in was refused there, or given up.",
  identity_refused: "What the issuer said about you could not be verified. Ask whoever runs this server.",
  issuer_unavailable: "The issuer does not answer. Try it again later, or use a token.",
  no_access: "You are known there, but have no rights in any project here. Ask whoever runs this server.",
};

/** What stands behind the #, which no server log has: a code that works once, or a refusal. */
function takeHash() {
  const found = new URLSearchParams(location.hash.slice(1));
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  return { code: found.get("code") ?? "", error: found.get("error") ?? "" };
}

export function Login() {
  const { value, failure: unread, reload } = useRead((signal) => api.get("/api/login", { signal }), []);
  const offer = /** @type {import("./types").LoginOffer | undefined} */ (value);
  const [failure, setFailure] = useState(/** @type {import("./api.js").Failure | null} */ (null));
  const [busy, setBusy] = useState(false);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  const next = safeNext(route.value.query.get("next"));
  const [said, setSaid] = useState("");
  const [asked, setAsked] = useState({ code: "", message: "" });
  /** @param {{ token: string } | { code: string, confirmed?: boolean }} credential */
  const signIn = async (credential) => {
    setBusy(true);
    setFailure(null);
    try {
      const who = /** @type {MeForm} */ (await api.send("POST", "/api/sessions", credential));
      me.value = who;
      goOn(who);
    } catch (error) {
      const refused = failureOf(error);
      // Somebody else's link would have whoever opens it act in that somebody's name.
      const asks = "code" in credential && refused.code === "confirmation_needed";
      setAsked(asks ? { code: credential.code, message: refused.message } : { code: "", message: "" });
      if (asks) await readMe().catch((unread) => setFailure(failureOf(unread)));
      else setFailure(refused);
    } finally {
      setBusy(false);
    }
  };
  /** @param {MeForm} who */
  const goOn = (who) => {
    const home = who.projects[0]?.project;
    go(next === "/ui/" && home ? pathTo(home, "inbox") : next, { replace: true });
  };
  useEffect(() => {
    const { code, error } = takeHash();
    if (code) void signIn({ code });
    if (error) setSaid(REFUSALS[error] ?? "The sign-in led to nothing. Try it again.");
  }, []);
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    const token = field.current?.value.trim() ?? "";
    if (field.current) field.current.value = "";
    if (token) void signIn({ token });
  };
  const who = me.value;
  if (asked.code) {
    return html`<main class="login">
      <h1>Holdfast</h1>
      <p class="lead">Is this link yours?</p>
      ${failure && html`<${Problem} failure=${failure} />`}
      <p role="alert">${asked.message} What you do afterwards is done with that token.</p>
      <p class="actions">
        <button type="button" class="primary" disabled=${busy} onClick=${() => (who ? goOn(who) : setAsked({ code: "", message: "" }))}>${who ? `Stay signed in as ${who.name}` : "Do not use it"}</button>
        <button type="button" disabled=${busy} onClick=${() => void signIn({ code: asked.code, confirmed: true })}>Sign in by this link</button>
      </p>
    </main>`;
  }
  return html`<main class="login">
    <h1>Holdfast</h1>
    <p class="lead">Decisions about drift.</p>
    ${unread && html`<${Problem} failure=${unread} retry=${reload} />`}
    ${said && html`<div class="problem" role="alert"><p>${said}</p></div>`}
    ${failure && html`<${Problem} failure=${failure} />`}
    ${offer?.openid.map((each) => html`<p key=${each.id}><a class="button primary" href=${`${each.url}?next=${encodeURIComponent(next)}`}>Sign in with ${each.name}</a></p>`)}
    ${
      offer?.token !== false &&
      html`<form onSubmit=${submit}>
        <label>Token<input ref=${field} name="token" type="password" autocomplete="off" spellcheck="false" placeholder="ik_sdk_…" required autofocus /></label>
        <p class="actions"><button type="submit" class=${offer?.openid.length ? "" : "primary"} disabled=${busy}>${busy ? "Signing in …" : "Sign in"}</button></p>
        <p class="faint">The token is exchanged for a session and kept nowhere in this browser. On the server's machine, <code>holdfast ui</code> gives a link that signs in.</p>
      </form>`
    }
    <p class="faint">${offer ? `Holdfast ${offer.version}` : ""}</p>
  </main>`;
}
