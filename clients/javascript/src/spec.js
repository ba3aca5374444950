/**
 * What a caller declares and what the server answers, between this language's names and the wire's.
 */

import { refusal, refuse } from "./errors.js";

/** The inference server. Any other slug names a custom backend. */
export const Backend = /** @type {const} */ ({
  Ollama: "ollama",
  Vllm: "vllm",
  VllmOmni: "vllm-omni",
  Sglang: "sglang",
  LlamaCpp: "llamacpp",
  StableDiffusionCpp: "stablediffusioncpp",
});

/** What `ensure` does when the live workload has drifted. */
export const OnDrift = /** @type {const} */ ({
  Reconcile: "reconcile",
  Fail: "fail",
  DryRun: "dry_run",
  Warn: "warn",
  Ignore: "ignore",
});

/** What `ensure` does when there is no such workload. */
export const OnAbsent = /** @type {const} */ ({ Create: "create", Plan: "plan", Fail: "fail" });

/** @typedef {(typeof OnDrift)[keyof typeof OnDrift]} OnDriftValue */
/** @typedef {(typeof OnAbsent)[keyof typeof OnAbsent]} OnAbsentValue */

/**
 * What one replica needs. Quantities as Kubernetes writes them.
 *
 * @typedef {object} Resources
 * @property {string} [cpu]
 * @property {string} [memory]
 * @property {number} [gpu]
 * @property {string} [gpuMemory]
 * @property {Record<string, number>} [accelerators]
 * @property {readonly {name: string, resourceClaimName?: string,
 *   resourceClaimTemplateName?: string, request?: string}[]} [claims]
 */

/**
 * @typedef {object} Autoscaling
 * @property {number} min
 * @property {number} max
 * @property {string} [metric]
 * @property {number} [target]
 * @property {{metric: string, target?: number}[]} [metrics]
 * @property {string} [preset]
 * @property {Record<string, unknown>} [behavior] As autoscaling/v2 of Kubernetes writes it.
 * @property {string | number} [idleAfter]
 * @property {"hpa" | "keda"} [scaler]
 */

/**
 * @typedef {object} Analysis
 * @property {string} metric
 * @property {number} [max]
 * @property {number} [min]
 * @property {string | number} [interval]
 * @property {number} [rounds]
 */

/**
 * @typedef {object} Canary
 * @property {number} weight
 * @property {string} [model]
 * @property {string} [modelRevision]
 * @property {string} [modelDigest]
 * @property {string} [command]
 * @property {string} [image]
 * @property {number} [replicas]
 * @property {Record<string, string>} [env]
 * @property {Resources} [resources]
 * @property {Analysis} [analysis]
 */

/**
 * A declared workload. A field left out is not yours: never compared and never written.
 *
 * @typedef {object} WorkloadSpec
 * @property {string} name
 * @property {string} model
 * @property {string} backend One of `Backend`, or the slug of a backend of your own.
 * @property {string} [slug] Made from the name when left out.
 * @property {string} [project]
 * @property {string} [description]
 * @property {string} [taskType]
 * @property {string} [modelRevision]
 * @property {string} [modelDigest]
 * @property {{size: string, storageClass?: string, accessMode?: string}} [cache]
 * @property {string} [command]
 * @property {string} [image]
 * @property {readonly string[]} [args]
 * @property {Record<string, string>} [env]
 * @property {Record<string, {name: string, key: string}>} [secrets]
 * @property {Record<string, unknown>} [config] Sent as it stands.
 * @property {string} [vllmVersion]
 * @property {string} [workerId]
 * @property {string} [gpuResourceId]
 * @property {number} [replicas]
 * @property {Autoscaling} [autoscaling]
 * @property {Resources} [resources]
 * @property {"fixed" | "scheduled" | "autoscaling"} [executionPolicy]
 * @property {Record<string, unknown>} [executionPolicyConfig] Sent as it stands: `min_workers`.
 * @property {Canary} [canary]
 * @property {{maxSurge?: number, drainTimeout?: string | number}} [rollout]
 * @property {{path?: string, interval?: string | number, timeout?: string | number,
 *   startup?: string | number}} [health]
 * @property {number} [nodes]
 * @property {{reason: string, until?: string}} [suspend]
 * @property {readonly {name: string, source: string, scale?: number}[]} [adapters]
 * @property {Record<string, unknown>} [podTemplate] Sent as it stands.
 * @property {{type?: string, annotations?: Record<string, string>, ports?: readonly {name: string,
 *   port: number, targetPort?: string | number, protocol?: string}[]}} [service]
 */

/**
 * A declaration that may say itself what to do about drift.
 *
 * @typedef {WorkloadSpec & {onDrift?: OnDriftValue, onAbsent?: OnAbsentValue}} EnsureSpec
 */

/**
 * Who wrote a field: a tool, and the credential it used.
 *
 * @typedef {object} Writer
 * @property {string} manager
 * @property {string} [actor]
 * @property {string} [operation]
 * @property {string} [at]
 */

/**
 * One differing field; `path` is a JSON pointer.
 *
 * @typedef {object} Change
 * @property {string} path
 * @property {string} kind
 * @property {unknown} [desired]
 * @property {unknown} [live]
 * @property {Writer} [writer]
 * @property {string} [cause]
 * @property {string} [evidence]
 */

/**
 * One action on one workload, guarded by the uid and the version that were seen.
 *
 * @typedef {object} Step
 * @property {string} project
 * @property {string} slug
 * @property {"create" | "update" | "delete" | "nothing"} action
 * @property {string} [reason]
 * @property {string} [disruption]
 * @property {Change[]} [changes]
 * @property {Record<string, unknown>} [write]
 * @property {string} [uid]
 * @property {string} [version]
 */

/**
 * What will be done, as the server wrote it: `holdfast apply` takes it from a file.
 *
 * @typedef {object} Plan
 * @property {string} apiVersion
 * @property {"Plan"} kind
 * @property {string} id
 * @property {string} digest
 * @property {Step[]} steps
 */

/**
 * How a workload is doing.
 *
 * @typedef {object} WorkloadStatus
 * @property {"scheduling" | "provisioning" | "bootstrapping" | "ready" | "error"} phase
 * @property {string} message
 * @property {number} ready
 * @property {number} wanted
 * @property {number} canaryWeight
 * @property {string | null} endpoint
 * @property {unknown[]} failed
 * @property {unknown[]} outdated
 * @property {string} suspended
 * @property {unknown[]} runtime
 * @property {string} runtimeUnknown
 */

/**
 * A live workload. `version` changes with every write; compare it with nothing but itself.
 *
 * @typedef {object} Workload
 * @property {string} projectSlug
 * @property {string} workloadSlug
 * @property {string} uid
 * @property {string} version
 * @property {number} generation
 * @property {WorkloadSpec} spec
 * @property {Record<string, Writer>} writers By field, under the wire's names.
 * @property {WorkloadStatus | undefined} status
 * @property {string} createdAt
 * @property {string} updatedAt
 */

/**
 * Every field of a spec, and of each field that has fields of its own, by this language's names;
 * the wire's are the same in snake_case. What is below any other field is sent as it stands.
 *
 * @type {Record<string, string | undefined>}
 */
export const FIELDS = {
  spec: "name model backend slug project description taskType modelRevision modelDigest cache"
    + " command image args env secrets config vllmVersion workerId gpuResourceId replicas"
    + " autoscaling resources executionPolicy executionPolicyConfig canary rollout health nodes"
    + " suspend adapters podTemplate service",
  secrets: "name key",
  service: "type annotations ports",
  autoscaling: "min max metric target metrics preset behavior idleAfter scaler",
  ports: "name port protocol targetPort",
  metrics: "metric target",
  claims: "name resourceClaimName resourceClaimTemplateName request",
  resources: "cpu memory gpu gpuMemory accelerators claims",
  canary: "weight model modelRevision modelDigest command image replicas env resources analysis",
  analysis: "metric max min interval rounds",
  rollout: "maxSurge drainTimeout",
  health: "path interval timeout startup",
  cache: "size storageClass accessMode",
  suspend: "reason until",
  adapters: "name source scale",
  status: "canaryWeight runtimeUnknown",
};
const POLICIES = " onDrift onAbsent apiVersion kind";

/** @param {string} name */
export function snakeCase(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/**
 * Write a spec for the wire. The wire's own names are taken too, as in a file that was read.
 *
 * @param {EnsureSpec} spec
 * @returns {{spec: Record<string, unknown>, project?: string, onDrift?: OnDriftValue,
 *   onAbsent?: OnAbsentValue}}
 */
export function specToWire(spec) {
  /** @type {import("./errors.js").Problem[]} */
  const problems = [];
  const wire = translate(spec ?? "", FIELDS.spec + POLICIES, "", problems);
  if (problems.length) throw refusal(...problems);
  const { project, on_drift: onDrift, on_absent: onAbsent, api_version: apiVersion, ...rest } = wire;
  return {
    spec: { ...rest, apiVersion },
    project: project ?? undefined,
    onDrift: choice(OnDrift, onDrift, "onDrift"),
    onAbsent: choice(OnAbsent, onAbsent, "onAbsent"),
  };
}

/**
 * Write fields under the wire's names, or read them where nobody asks for problems: what a newer
 * server has beyond the table then stays as it is.
 *
 * @param {any} given
 * @param {string | undefined} known
 * @param {string} where
 * @param {import("./errors.js").Problem[]} [problems]
 * @returns {any}
 */
function translate(given, known, where, problems) {
  if (!known || given === null) return given;
  if (typeof given !== "object") {
    problems?.push({ field: where || "spec", reason: "it is no object.", fix: `Give ${known}.` });
    return given;
  }
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const [name, value] of Object.entries(given)) {
    const field = where ? `${where}.${name}` : name;
    const ours = known.split(" ").find((each) => each === name || snakeCase(each) === name);
    const key = problems ? snakeCase(ours ?? "") : (ours ?? name);
    if (!key || key in found) {
      const reason = key ? "it is given twice." : "there is no such field.";
      problems?.push({ field, reason, fix: `Use one of ${known}.` });
    } else if (value !== undefined) {
      const fields = FIELDS[ours ?? ""];
      // Of some there are several: in a list, or each under a name of the caller's.
      found[key] = fields && Array.isArray(value) ? value.map((part) => translate(part, fields, field, problems))
        : name === "secrets" && Object(value) === value
          ? Object.fromEntries(Object.entries(value).map(([part, inner]) =>
              [part, translate(inner, fields, `${field}.${part}`, problems)]))
          : translate(value, fields, field, problems);
    }
  }
  return found;
}

/**
 * Read a workload that the server answered.
 *
 * @param {any} form
 * @returns {Workload}
 */
export function workloadFromWire(form) {
  return {
    projectSlug: form.project_slug,
    workloadSlug: form.workload_slug || form.slug,
    uid: form.id,
    version: form.version,
    generation: form.generation ?? 0,
    spec: { ...translate(form.spec, FIELDS.spec, ""), slug: form.slug },
    writers: form.writers ?? {},
    status: form.status && translate(form.status, FIELDS.status, ""),
    createdAt: form.created_at,
    updatedAt: form.updated_at,
  };
}

/**
 * Check one of several values; undefined is none.
 *
 * @template {string} T
 * @param {Record<string, T>} values
 * @param {any} given
 * @param {string} field
 * @returns {T | undefined}
 */
export function choice(values, given, field) {
  const known = Object.values(values);
  if (given === undefined || known.includes(given)) return given;
  throw refuse(field, `it is ${JSON.stringify(given)}.`, `Use ${known.join(", ")}.`);
}
