/** Words and figures: how the page says a state, a cause, a cost, an age. Pure functions. */

/** @typedef {import("./types").Cost} Cost */
/** @typedef {import("./types").Drift} Drift */
/** @typedef {import("./types").Entry} Entry */
/** @typedef {import("./types").ObjectName} ObjectName */

/**
 * A state is said by a shape, a word and a tone (which is a colour), never by one of them alone.
 * @type {Record<string, [string, string, string]>}
 */
const STATES = {
  "detected": ["●", "Detected", "warn"],
  "awaiting-approval": ["◆", "Needs approval", "accent"],
  "approved": ["✓", "Approved", "good"],
  "rejected": ["✕", "Rejected", "quiet"],
  "snoozed": ["◔", "Snoozed", "quiet"],
  "healing": ["◐", "Healing", "good"],
  "fighting": ["⚠", "Fighting", "bad"],
  "pull-request": ["⇄", "Pull request", "accent"],
  "held": ["‖", "On hold", "quiet"],
  "parked": ["■", "Blocked", "bad"],
  "resolved": ["✓", "Resolved", "quiet"],
  "synced": ["✓", "In sync", "good"],
  "in-sync": ["✓", "In sync", "good"],
  "ahead": ["↑", "Out of sync", "warn"],
  "out-of-sync": ["↑", "Out of sync", "warn"],
  "drifted": ["●", "Drifted", "warn"],
  "left-over": ["−", "Prunable", "warn"],
  "orphan": ["?", "Orphan", "quiet"],
  "unknown": ["?", "Unknown", "quiet"],
  "healthy": ["✓", "Healthy", "good"],
  "progressing": ["◐", "Progressing", "warn"],
  "degraded": ["✕", "Degraded", "bad"],
  "suspended": ["‖", "Suspended", "quiet"],
  "missing": ["✕", "Missing", "bad"],
  "ready": ["✓", "Ready", "good"],
  "error": ["✕", "Error", "bad"],
  "failed": ["✕", "Failed", "bad"],
  "stopped": ["■", "Stopped", "quiet"],
  "deleted": ["−", "Deleted", "quiet"],
};

/** @param {string} state @returns {[string, string, string]} shape, word and tone */
export function stateWords(state) {
  return STATES[state] ?? STATES[state.toLowerCase()] ?? ["◐", sentenceCase(state), "quiet"];
}

/** @type {Record<string, string>} */
const CAUSES = {
  person: "a person's tool",
  autoscaler: "an autoscaler",
  controller: "a controller",
  admission: "the server's admission",
  hardware: "hardware",
  gitops: "another GitOps tool",
  unknown: "unknown",
};

/** @param {string | undefined} cause */
export function causeWords(cause) {
  return CAUSES[cause ?? "unknown"] ?? cause ?? "unknown";
}

/** @type {Record<string, string>} */
const RESOLUTIONS = {
  self_heal: "healed by itself",
  approved: "approved and put back",
  codified: "Git declares it now",
  reverted: "put back",
  external: "others put it back, or Git moved to it",
  ignored: "ignored by a rule",
  superseded: "another drift took its place",
  gone: "the object or its declaration is gone",
};

/** @param {string | undefined} resolution */
export function resolutionWords(resolution) {
  return resolution ? (RESOLUTIONS[resolution] ?? resolution) : "";
}

/** @type {Record<string, string>} */
const REMEDIATIONS = {
  "report": "is only reported",
  "self-heal": "is healed without being asked",
  "review": "waits for a person",
  "pull-request": "goes to a pull request",
  "ignore": "is ignored",
};

/** @param {string} remediation */
export function remediationWords(remediation) {
  return REMEDIATIONS[remediation] ?? remediation;
}

/** @param {string} text */
export function sentenceCase(text) {
  const words = text.replaceAll(/[-_]/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : (many ?? one + "s")}`;
}

/** @param {number} seconds a length of time, in its two largest units */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.round(whole / 60)} min`;
  if (whole < 86_400) {
    const hours = Math.floor(whole / 3600);
    const minutes = Math.floor((whole % 3600) / 60);
    return minutes && hours < 10 ? `${hours} h ${minutes} min` : `${hours} h`;
  }
  const days = Math.floor(whole / 86_400);
  const hours = Math.floor((whole % 86_400) / 3600);
  return hours && days < 7 ? `${days} d ${hours} h` : `${days} d`;
}

/** @param {string} at @param {number} [now] milliseconds */
export function age(at, now = Date.now()) {
  return duration((now - Date.parse(at)) / 1000);
}

/** @param {string | undefined} at */
export function moment(at) {
  if (!at) return "";
  const date = new Date(at);
  const day = date.toLocaleDateString("sv-SE");
  return `${day} ${date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" })}`;
}

/** @param {string | ObjectName | undefined} object */
export function objectName(object) {
  if (!object) return "";
  if (typeof object === "string") return object;
  return `${object.kind} ${object.namespace ? object.namespace + "/" : ""}${object.name}`;
}

/** @param {ObjectName} object as `KIND/NAMESPACE/NAME`, which the API reads */
export function objectKey(object) {
  return [object.kind, object.namespace, object.name].filter(Boolean).join("/");
}

/** @param {number} count as the command line writes them: `95 s`, `2.5 s` */
function seconds(count) {
  return `${count >= 10 ? Math.round(count) : Number(count.toFixed(1)) || Number(count.toFixed(3))} s`;
}

/** @param {Cost | undefined} cost the same sentence as the command line's @param {string} unit what a workload runs as */
export function costWords(cost, unit = "pod") {
  if (!cost) return "cost unknown";
  const pods = cost.pods ?? 0;
  const added = cost.added ?? 0;
  const ofOne = cost.several ? "of one workload " : "";
  const parts = [];
  if (cost.kind === "rolling") parts.push(`rolling restart of ${plural(pods, unit)}`);
  else if (cost.kind === "gap" && pods) parts.push(`restarts ${plural(pods, unit)}, and ${ofOne}none answers meanwhile`);
  else if (cost.kind === "recreate" && cost.several) parts.push(`restarts ${plural(pods, unit)}, of one workload all before the first new one`);
  else if (cost.kind === "recreate") parts.push(`ends ${plural(pods, unit)} before the first new one starts`);
  const left = cost.kind === "gap" && !pods ? `, and ${ofOne}none is left` : "";
  if (added > 0) parts.push(`starts ${plural(added, unit)}${pods ? " more" : ""}${left}`);
  else if (added < 0) parts.push(`ends ${plural(-added, unit)}${left}`);
  else if (left) parts.push(`starts as many ${unit}s as it ends${left}`);
  const sentences = [parts.join(", ") || "restarts nothing"];
  const held = pods ? "beside the running ones" : "in all";
  const needs = (cost.devices ?? [])
    .filter((each) => each.needed)
    .map((each) => `needs ${each.needed} ${each.resource} ${held}, ${each.free === undefined ? "free unknown" : `${each.free} free`}`)
    .join(", ");
  if (cost.blocked) sentences.unshift(`will not finish on the nodes there are: ${needs}`);
  else if (needs) sentences.push(needs);
  if (pods || added > 0) sentences.push(cost.cold_start === undefined ? "cold start unknown" : `last cold start ${seconds(cost.cold_start)}`);
  if (cost.partial) sentences.push("the rest unknown");
  return sentences.join("; ");
}

/** @param {Cost | undefined} cost a class: what callers would notice must look like it */
export function costTone(cost) {
  return cost?.blocked || cost?.kind === "gap" || cost?.kind === "recreate" ? "outage" : "";
}

/** @param {Cost | undefined} cost a few words for a row @param {string} unit what a workload runs as */
export function costShort(cost, unit = "pod") {
  if (!cost) return "unknown";
  if (cost.blocked) return "⚠ won't finish";
  if (costTone(cost)) return "⚠ outage";
  if (cost.kind === "rolling") return plural(cost.pods ?? 0, "restart");
  return cost.added ? `${cost.added > 0 ? "starts" : "ends"} ${plural(Math.abs(cost.added), unit)}` : "none";
}

/** @param {Entry[]} entries who wrote it, once each */
export function writersOf(entries) {
  const names = entries.map((entry) => entry.writer?.actor || entry.writer?.manager || "");
  return [...new Set(names)].filter(Boolean);
}

/** @param {Entry[]} entries */
export function causesOf(entries) {
  return [...new Set(entries.map((entry) => entry.cause ?? "unknown"))];
}

/** @param {Drift} drift "data.x differs", "3 fields differ", "it was deleted" */
function happening({ entries, uid, where }) {
  const whole = entries.some((entry) => !entry.path);
  if (whole && !uid) return "was deleted";
  if (whole) return where ? "was replaced" : "is there without Git";
  const first = entries[0];
  if (entries.length === 1 && first) return `differs from Git in ${first.path}`;
  return `differs from Git in ${entries.length} fields`;
}

/** @param {Drift} drift one sentence that says it all */
export function driftSentence(drift) {
  const writers = writersOf(drift.entries);
  const causes = causesOf(drift.entries).map(causeWords);
  const by = writers.length ? `by ${writers.join(" and ")} (${causes.join(", ")})` : "by whom is unknown";
  return `${objectName(drift.object)} ${happening(drift)}, ${by}.`;
}

/** @param {boolean} there @param {boolean} declared @returns {[string, string]} both sides of an object as a whole */
export function wholeSides(there, declared) {
  return [there ? "it is there" : "it is not there", declared ? "declared" : "not declared"];
}

/** @param {string} application `namespace/name` as it stands in a path */
export function applicationLabel(application) {
  return application.replace("/", ".");
}

/** @param {string | undefined} digest */
export function shortDigest(digest) {
  return digest ? digest.slice(0, 19) : "";
}

/** @param {string} plan its id or digest, as it stands in an address: hex digits alone */
export function planKey(plan) {
  return plan.replace(/^sha256:/, "");
}
