/** Declares workloads and keeps them as declared, by calling the control plane. */

import {
  addChanges,
  ConflictError,
  NotFoundError,
  refuse,
  StalePlanError,
  UnavailableError,
  WaitTimeoutError,
  WorkloadFailedError,
} from "./errors.js";
import { ApiClient, Call, path, sleep, TIMEOUT_MS } from "./http.js";
import { checkOptions, checkSlug, misconfigured, setting } from "./settings.js";
import { choice, OnAbsent, OnDrift, specToWire, workloadFromWire } from "./spec.js";

/** @typedef {import("./http.js").CallOptions} CallOptions */
/** @typedef {import("./spec.js").EnsureSpec} EnsureSpec */
/** @typedef {import("./spec.js").OnAbsentValue} OnAbsentValue */
/** @typedef {import("./spec.js").OnDriftValue} OnDriftValue */
/** @typedef {import("./spec.js").Plan} Plan */
/** @typedef {import("./spec.js").Step} Step */
/** @typedef {import("./spec.js").Workload} Workload */
/** @typedef {{project?: string} & CallOptions} ProjectCallOptions */

const PAGE_SIZE = 500;
const DELETE_ATTEMPTS = 8;
const WAIT_MS = 600_000;
const POLL_MS = 1000;
const CALL = "project signal timeoutMs";

/**
 * @typedef {object} ManagementOptions
 * @property {string} [baseUrl] In a browser, left out means the page's own server.
 * @property {string} [project] Of calls that name none.
 * @property {string} [sdkToken] A control token, `ik_sdk_…`.
 * @property {number} [timeoutMs] For each call as a whole; 30 seconds.
 * @property {number} [retries] How often a request is repeated at most; 3.
 * @property {boolean} [allowInsecure] Let the token cross the network over plain http.
 * @property {typeof fetch} [fetch] Your own, for proxies, certificates or tests.
 * @property {(message: string) => void} [onWarning] Told of drift under `OnDrift.Warn`;
 *   `console.warn` by default.
 */

/**
 * @typedef {object} EnsureOptions
 * @property {OnDriftValue} [onDrift] `reconcile` by default.
 * @property {OnAbsentValue} [onAbsent] `create` by default.
 */

/**
 * What `ensure` did. Completes the sentence "the workload was …".
 *
 * @typedef {object} EnsureResult
 * @property {string} projectSlug
 * @property {string} workloadSlug
 * @property {"created" | "updated" | "unchanged" | "planned" | "left"} outcome
 * @property {Plan} plan
 * @property {Workload} [workload] As it is now; left out when it was only planned.
 * @property {boolean} repeated A first try got no answer and was repeated: `unchanged` then
 *   means that it is as declared now, perhaps by that first try.
 */

/**
 * @typedef {object} WorkloadChange
 * @property {"present" | "created" | "updated" | "deleted"} kind `present`: it was there when the
 *   watch began.
 * @property {Workload} workload Of a deleted one, the last that was seen.
 */

/**
 * @typedef {object} Progress
 * @property {"scheduling" | "provisioning" | "bootstrapping" | "ready" | "error"} phase
 * @property {string} message
 * @property {number} elapsedMs
 * @property {string} [step]
 */

/** The workloads of a control plane. */
export class ManagementClient {
  #timeoutMs;
  #warn;

  /** @param {ManagementOptions} options */
  constructor({ project, sdkToken, timeoutMs = TIMEOUT_MS, onWarning, ...connection }) {
    if (!sdkToken) {
      throw misconfigured("There is no token for the server.", "Set HOLDFAST_TOKEN, or pass sdkToken.");
    }
    /** The project of calls that name none. */
    this.project = project && checkSlug(project, "project");
    /** For routes that have no method here. */
    this.api = new ApiClient({ ...connection, token: sdkToken, timeoutMs });
    this.#timeoutMs = timeoutMs;
    this.#warn = onWarning ?? ((message) => console.warn(message));
  }

  /**
   * Build a client from arguments, then `HOLDFAST_*`, then `INFERENCEKEY_*`.
   *
   * @param {ManagementOptions} [options]
   */
  static fromEnv({ baseUrl, project, sdkToken, ...more } = {}) {
    return new ManagementClient({
      baseUrl: setting(baseUrl, "URL", "BASE_URL"),
      project: setting(project, "PROJECT"),
      sdkToken: setting(sdkToken, "TOKEN", "SDK_TOKEN"),
      ...more,
    });
  }

  /**
   * Make the live workload match the spec, as far as the policy allows.
   *
   * Absent, it is created; in sync, nothing happens; drifted, `onDrift` decides: `reconcile`
   * updates it, `fail` throws a DriftError with the plan, `dry_run` answers the plan, `warn`
   * warns, `ignore` keeps quiet. `onDrift` and `onAbsent` may stand in the spec instead; where
   * both places disagree it throws, and nothing is sent.
   *
   * @param {EnsureSpec} spec
   * @param {EnsureOptions & ProjectCallOptions} [options]
   * @returns {Promise<EnsureResult>}
   */
  async ensure(spec, options = {}) {
    const { onDrift, onAbsent, project } = checkOptions(options, `onDrift onAbsent ${CALL}`);
    const declared = specToWire(spec);
    const policy = agreed(OnDrift, onDrift, declared.onDrift, "onDrift") ?? OnDrift.Reconcile;
    const absent = agreed(OnAbsent, onAbsent, declared.onAbsent, "onAbsent") ?? OnAbsent.Create;
    const slug = this.#projectOf(project ?? declared.project);
    const { body, repeated } = await this.api.request("POST", path`/api/projects/${slug}/ensure`, {
      ...options,
      body: { spec: declared.spec, on_drift: policy, on_absent: absent },
      idempotencyKey: newKey(),
    });
    const [step] = body.plan.steps;
    if (body.outcome === "left" && policy === OnDrift.Warn) {
      this.#warn(
        `Workload ${slug}/${step.slug} has drifted in ${describe(step)}. Nothing was changed.`,
      );
    }
    return {
      projectSlug: slug,
      workloadSlug: step.slug,
      outcome: body.outcome,
      plan: body.plan,
      ...(body.workload && { workload: workloadFromWire(body.workload) }),
      repeated,
    };
  }

  /**
   * Say what `ensure` would do, of one spec or of several. Changes nothing.
   *
   * @param {EnsureSpec | readonly EnsureSpec[]} specs
   * @param {ProjectCallOptions} [options]
   * @returns {Promise<Plan>}
   */
  async plan(specs, options = {}) {
    const { project } = checkOptions(options, CALL);
    const given = Array.isArray(specs) ? specs : [specs];
    const declared = given.map(specToWire);
    const slugs = new Set(declared.map((each) => this.#projectOf(project ?? each.project)));
    if (slugs.size > 1) {
      throw refuse("project", "the specs name several.", "Plan each alone.");
    }
    const [slug = this.#projectOf(project)] = slugs;
    const { body } = await this.api.request("POST", path`/api/projects/${slug}/plan`, {
      ...options,
      body: { specs: declared.map((each) => each.spec) },
      writes: false,
    });
    return body;
  }

  /**
   * Carry out exactly this plan, or throw a StalePlanError before the first write.
   *
   * Answers the workload after each step, null where it is gone. The digest is not checked here:
   * what guards each step is the version that it saw.
   *
   * @param {Plan} plan
   * @param {CallOptions} [options]
   * @returns {Promise<(Workload | null)[]>}
   */
  async apply(plan, options = {}) {
    checkOptions(options, "signal timeoutMs");
    if (plan?.kind !== "Plan") throw refuse("plan", "it is none.", "Make one with plan().");
    const call = new Call(options, this.#timeoutMs);
    const all = plan.steps.filter((each) => each.action !== "nothing").length;
    const key = newKey();
    let done = 0;
    try {
      for (const step of plan.steps) {
        checkFresh(plan, step, await this.#find(step.project, step.slug, { call }));
      }
      const after = [];
      for (const step of plan.steps) {
        const nothing = step.action === "nothing";
        after.push(nothing
          ? ((await this.#find(step.project, step.slug, { call })) ?? null)
          : await this.#perform(step, `${key}-${done}`, call));
        done += Number(!nothing);
      }
      return after;
    } catch (error) {
      throw done ? addChanges(error, `${done} of ${all} changes were made before that.`) : error;
    } finally {
      call.end();
    }
  }

  /**
   * Return one live workload. Throws a NotFoundError when there is none.
   *
   * @param {string} slug
   * @param {ProjectCallOptions} [options]
   * @returns {Promise<Workload>}
   */
  async get(slug, options = {}) {
    const { project } = checkOptions(options, CALL);
    return workloadFromWire(await this.api.get(this.#path(slug, project), options));
  }

  /**
   * Yield every live workload of the project by slug, page by page. `timeoutMs` is for each page.
   *
   * @param {ProjectCallOptions & {pageSize?: number}} [options]
   * @returns {AsyncGenerator<Workload, void>}
   */
  async *list(options = {}) {
    const { project, pageSize = PAGE_SIZE } = checkOptions(options, `pageSize ${CALL}`);
    const where = path`/api/projects/${this.#projectOf(project)}/workloads`;
    for (let after = ""; ; ) {
      const query = { limit: pageSize, after };
      /** @type {{workloads: any[]}} */
      const { workloads } = await this.api.get(where, { ...options, query });
      for (const form of workloads) {
        after = form.slug;
        yield workloadFromWire(form);
      }
      if (workloads.length < pageSize) return;
    }
  }

  /**
   * Yield what is there, then each change, for as long as you listen. After a cut everything is
   * read again and compared, so no change is lost; of several in between, the last is told.
   *
   * @param {{slug?: string, project?: string, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<WorkloadChange, void>}
   */
  async *watch(options = {}) {
    const { slug, project, signal } = checkOptions(options, "slug project signal");
    const where = this.#projectOf(project);
    if (slug !== undefined) checkSlug(slug);
    /** @type {Map<string, Workload>} */
    const seen = new Map();
    /** @type {"present" | "created"} */
    let fresh = "present";
    const events = this.api.events(path`/api/projects/${where}/events`, { signal, open: true });
    for await (const { event, data } of events) {
      const only = data?.slug ?? slug;
      if (/^(lost|back)$/.test(event) || (slug && only !== slug)) continue;
      const now = await this.#observe(where, only, signal);
      for (const key of new Set([...(only ? [only] : seen.keys()), ...now.keys()])) {
        const old = seen.get(key);
        const workload = now.get(key);
        if (old && old.uid !== workload?.uid) yield { kind: "deleted", workload: old };
        seen.delete(key);
        if (!workload) continue;
        seen.set(key, workload);
        if (old?.uid !== workload.uid) yield { kind: fresh, workload };
        else if (state(old) !== state(workload)) yield { kind: "updated", workload };
      }
      fresh = "created";
    }
  }

  /**
   * Delete a workload. True when it was there, false when it was already gone.
   *
   * @param {string} slug
   * @param {ProjectCallOptions} [options]
   */
  async delete(slug, options = {}) {
    const where = this.#projectOf(checkOptions(options, CALL).project);
    const call = new Call(options, this.#timeoutMs);
    const key = newKey();
    try {
      for (let attempt = 1; ; attempt++) {
        const live = await this.#find(where, slug, { call });
        if (!live) return false;
        const { uid, version } = live;
        /** @type {Step} */
        const step = { project: where, slug, action: "delete", reason: "asked for",
          disruption: "stop", uid, version };
        try {
          await this.#perform(step, `${key}-${attempt}`, call);
          return true;
        } catch (error) {
          // Another writer was first: look again.
          if (!(error instanceof ConflictError) || attempt === DELETE_ATTEMPTS) throw error;
        }
      }
    } finally {
      call.end();
    }
  }

  /**
   * Wait until the workload serves. Without `onProgress` each step is shown by `console.warn`,
   * apart from results on stdout, unless `silent`. Throws a WorkloadFailedError when it cannot serve, a WaitTimeoutError when
   * the time is over. A server that does not answer is waited for.
   *
   * @param {string} slug
   * @param {object} [options]
   * @param {number} [options.timeoutMs] 10 minutes.
   * @param {(progress: Progress) => void} [options.onProgress]
   * @param {boolean} [options.silent]
   * @param {AbortSignal} [options.signal]
   * @param {string} [options.project]
   * @returns {Promise<Progress>}
   */
  async waitUntilReady(slug, options = {}) {
    const { timeoutMs = WAIT_MS, onProgress, silent, signal, project } = checkOptions(
      options, `onProgress silent ${CALL}`,
    );
    const where = `${this.#path(slug, project)}/readiness-events`;
    const show = onProgress
      ?? (({ phase, message }) => silent || console.warn(`${slug}: ${phase}: ${message}`));
    const call = new Call(options, WAIT_MS);
    let last = "it was not heard of yet";
    try {
      for await (const { event, data, error } of this.api.events(where, { signal: call.signal })) {
        if (event === "lost" && error instanceof Error) last = error.message;
        if (event !== "message") continue;
        /** @type {Progress} */
        const progress = { phase: data.phase, message: data.message, step: data.step ?? undefined,
          elapsedMs: data.elapsed_ms };
        last = `it was ${progress.phase}: ${progress.message}`;
        show(progress);
        if (progress.phase === "ready") return progress;
        if (progress.phase === "error") {
          throw new WorkloadFailedError(`Workload ${slug} cannot serve: ${progress.message}`, {
            code: "workload_failed",
            hint: "Read its log (holdfast logs), mend the declaration and ensure it again.",
          });
        }
      }
    } catch (error) {
      if (signal?.aborted || !call.signal.aborted) throw error;
    } finally {
      call.end();
    }
    throw new WaitTimeoutError(`Workload ${slug} was not ready after ${timeoutMs / 1000} s; ${last}.`, {
      code: "wait_timeout",
      hint: "It may still be starting: wait again, or read its log (holdfast logs).",
    });
  }

  /** @param {string} [project] */
  #projectOf(project = this.project) {
    if (!project) {
      throw misconfigured("No project was named.", "Set HOLDFAST_PROJECT, or pass project.");
    }
    return checkSlug(project, "project");
  }

  /**
   * @param {string} slug
   * @param {string} [project]
   */
  #path(slug, project) {
    checkSlug(slug);
    return path`/api/projects/${this.#projectOf(project)}/workloads/${slug}`;
  }

  /**
   * Return a workload, or undefined when the control plane itself says that there is none.
   *
   * @param {string} project
   * @param {string} slug
   * @param {{signal?: AbortSignal, call?: Call}} options
   */
  async #find(project, slug, options) {
    try {
      return workloadFromWire((await this.api.request("GET", this.#path(slug, project), options)).body);
    } catch (error) {
      if (error instanceof NotFoundError && error.code === "not_found") return undefined;
      throw error;
    }
  }

  /**
   * Return one workload or all by slug, trying until the server answers.
   *
   * @param {string} project
   * @param {string | undefined} slug
   * @param {AbortSignal | undefined} signal
   */
  async #observe(project, slug, signal) {
    for (;;) {
      try {
        /** @type {Map<string, Workload>} */
        const found = new Map();
        const one = slug && (await this.#find(project, slug, { signal }));
        if (one) found.set(one.workloadSlug, one);
        else if (!slug) {
          for await (const all of this.list({ project, signal })) found.set(all.workloadSlug, all);
        }
        return found;
      } catch (error) {
        if (!(error instanceof UnavailableError)) throw error;
        await sleep(POLL_MS, signal);
      }
    }
  }

  /**
   * @param {Step} step
   * @param {string} idempotencyKey
   * @param {Call} call
   */
  async #perform(step, idempotencyKey, call) {
    const where = path`/api/projects/${step.project}/steps`;
    const { body } = await this.api.request("POST", where, { call, body: step, idempotencyKey });
    return body ? workloadFromWire(body) : null;
  }
}

/**
 * Return what two places say; throw where they disagree.
 *
 * @template {string} T
 * @param {Record<string, T>} values
 * @param {unknown} option
 * @param {T | undefined} inSpec
 * @param {string} field
 */
function agreed(values, option, inSpec, field) {
  const given = choice(values, option, field);
  if (given !== undefined && inSpec !== undefined && given !== inSpec) {
    throw refuse(field, `the spec says ${inSpec}, the call ${given}.`, "Say it in one place.");
  }
  return given ?? inSpec;
}

/**
 * Throw unless the workload is as the plan saw it.
 *
 * @param {Plan} plan
 * @param {Step} step
 * @param {Workload | undefined} live
 */
function checkFresh(plan, step, live) {
  const moved = !live
    ? step.uid && "deleted"
    : !step.uid
      ? "created"
      : live.uid !== step.uid
        ? "replaced"
        : live.version !== step.version && "changed";
  if (moved) {
    throw new StalePlanError(
      `Workload ${step.project}/${step.slug} was ${moved} meanwhile, so ${plan.id} no longer `
        + "describes it. Nothing was changed.",
      { code: "stale_plan", hint: "Make a new plan and review it again." },
    );
  }
}

/**
 * What makes an update: another version, or another status.
 *
 * @param {Workload} workload
 */
function state({ version, status }) {
  return JSON.stringify([version, status]);
}

/** @param {Step} step */
function describe({ changes = [] }) {
  return changes.map(({ path, writer }) => path.slice(1) + (writer ? ` (by ${writer.manager})` : ""))
    .join(", ");
}

/** A key of its own for each call, by which the server knows a write that it has seen. */
function newKey() {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}
