/**
 * Every error of this client, and how an answer of the server becomes one.
 *
 * `code` is stable and safe to match on; `message` is for people: what happened, what was or was
 * not changed, what to do next.
 */

const NOTHING_CHANGED = "Nothing was changed.";
const OUTCOME_UNKNOWN = "The request was sent, so whether it took effect is unknown.";
const LOOK_FIRST = "Look at what is there before you repeat it.";
/** What to do about an answer that is none of ours. */
const NOT_OURS = "Check that the address is that of a Holdfast server.";
const MAX_MESSAGE = 8000;
/** Statuses after which the same request may succeed later. */
export const RETRIED = [408, 425, 429, 500, 502, 503, 504];
/** Statuses after which a write may have taken effect all the same. */
const MAYBE_APPLIED = [408, 500, 502, 503, 504];
/** Names the replica that answered; on answers of workloads alone. */
const REPLICA = "x-holdfast-replica";

/**
 * @typedef {object} ErrorDetails
 * @property {string} [code]
 * @property {number} [status] The HTTP status, where there was an answer.
 * @property {string} [requestId] Names the request in the server's log.
 * @property {string} [hint] What to do next.
 * @property {number} [retryAfter] Seconds that the server asked us to wait.
 * @property {boolean} [outcomeUnknown] A write was sent and may have taken effect.
 * @property {Problem[]} [problems]
 * @property {import("./spec.js").Plan} [plan]
 * @property {unknown} [cause]
 */

/**
 * One thing wrong with an input: where, why, and how to mend it.
 *
 * @typedef {object} Problem
 * @property {string} field
 * @property {string} reason
 * @property {string} fix
 */

/** Root of the tree. */
export class HoldfastError extends Error {
  /**
   * @param {string} message
   * @param {ErrorDetails} [details]
   */
  constructor(message, details = {}) {
    const { hint = "" } = details;
    super(clean(message.includes(hint) ? message : `${message} ${hint}`), details);
    /** Of the class. Where a bundler shortens names, match on `code` or by `instanceof`. */
    this.name = new.target.name;
    /** Stable and safe to match on: the server's own, or a word for what the client found. */
    this.code = details.code ?? "client";
    /** The HTTP status, where there was an answer. */
    this.status = details.status;
    /** Names the request in the server's log. */
    this.requestId = details.requestId;
    /** What to do next; it stands in the message, too. */
    this.hint = clean(hint);
    /** Seconds that the server asked us to wait. */
    this.retryAfter = details.retryAfter;
    /** True when a write was sent and nobody can say whether it took effect. */
    this.outcomeUnknown = details.outcomeUnknown ?? false;
  }
}

/** The caller's set-up cannot work: a missing project, a bad address, no token. */
export class ConfigurationError extends HoldfastError {}

/** The input was refused. `problems` lists what is wrong with it. */
export class ValidationError extends HoldfastError {
  /**
   * @param {string} message
   * @param {ErrorDetails} [details]
   */
  constructor(message, details = {}) {
    const { problems = [] } = details;
    const lines = problems.map(({ field, reason, fix }) => `\n  ${field}: ${reason} ${fix}`);
    super(message.includes("\n") ? message : message + lines.join(""), details);
    this.problems = problems;
  }
}

/** The policy was to fail and the live workload had drifted; `plan` would mend it. */
export class DriftError extends ValidationError {
  /**
   * @param {string} message
   * @param {ErrorDetails} details
   */
  constructor(message, details) {
    super(message, details);
    this.plan = /** @type {import("./spec.js").Plan} */ (details.plan);
  }
}

/** The credential is missing, malformed, unknown, expired or revoked. */
export class AuthError extends HoldfastError {}

/** The credential is good, but not for this. */
export class PermissionDeniedError extends HoldfastError {}

/** There is no such thing, or the caller may not know of it. */
export class NotFoundError extends HoldfastError {}

/** Another writer was first, or it is not possible as things stand; `code` says which. */
export class ConflictError extends HoldfastError {}

/** The world moved after the plan was made, so the plan was not carried out. */
export class StalePlanError extends ConflictError {}

/** The server did not answer, or said that it cannot now. The same call may succeed later. */
export class UnavailableError extends HoldfastError {}

/** Too many requests; `retryAfter` says how many seconds to wait. */
export class RateLimitError extends UnavailableError {}

/** The call's own `timeoutMs` was over before there was a whole answer. */
export class DeadlineError extends UnavailableError {}

/** The time was over before the workload was ready. */
export class WaitTimeoutError extends HoldfastError {}

/** The workload cannot serve: its process exited, or never answered its health check. */
export class WorkloadFailedError extends HoldfastError {}

/** The server answered with something that is none of the above. */
export class ApiError extends HoldfastError {}

/** The workload's own server answered with an error; `status` is its own. */
export class BackendError extends ApiError {}

/** @type {Record<string, new (message: string, details: ErrorDetails) => HoldfastError>} */
const KINDS = {
  400: ValidationError, 401: AuthError, 403: PermissionDeniedError, 404: NotFoundError,
  409: ConflictError, 412: ConflictError, 413: ValidationError, 415: ValidationError,
  422: ValidationError, 429: RateLimitError, stale_plan: StalePlanError,
};

/**
 * Refuse an input before anything is sent.
 *
 * @param {...Problem} problems
 */
export function refusal(...problems) {
  return new ValidationError("Nothing was sent.", {
    code: "invalid", problems, hint: problems.length > 1 ? "" : problems[0]?.fix,
  });
}

/**
 * @param {string} field
 * @param {string} reason
 * @param {string} fix
 */
export function refuse(field, reason, fix) {
  return refusal({ field, reason, fix });
}

/**
 * Make text from the other side fit for a message: bounded, printable, without whole tokens.
 *
 * @param {string} text
 */
export function clean(text) {
  return text
    .slice(0, MAX_MESSAGE)
    .replace(/(ik_(?:sdk|live)_\w{0,8})\w*/g, "$1…")
    .replace(/[\0-\x09\x0b-\x1f\x7f-\x9f]/g, " ");
}

/**
 * Say whether a request surely was not begun, so that even a write without a key may be repeated.
 * A gateway answers 503 also when the server broke off in the middle, and names no time then.
 *
 * @param {number} status
 * @param {Headers} headers
 */
export function turnedAway(status, headers) {
  const atTheDoor = headers.has("retry-after") || headers.has(REPLICA);
  return status === 429 || (status === 503 && atTheDoor);
}

/**
 * What is known of an answer that is no success.
 *
 * @typedef {object} FailedAnswer
 * @property {string} path
 * @property {boolean} wrote The request was a write.
 * @property {boolean} lost An earlier try of the same write got no answer.
 * @property {number} status
 * @property {Headers} headers
 * @property {string} text
 */

/**
 * Return the error that an answer means.
 *
 * @param {FailedAnswer} answer
 * @returns {HoldfastError}
 */
export function errorFrom({ path, wrote, lost, status, headers, text }) {
  const { code, problems, plan, ...form } = errorForm(text);
  const maybeApplied = MAYBE_APPLIED.includes(status) && !turnedAway(status, headers);
  const outcomeUnknown = wrote && (lost || maybeApplied);
  let message = form.message || `${path} was answered with ${status || "a redirect"}.`;
  const [first = "", rest = ""] = message.replace(OUTCOME_UNKNOWN, NOTHING_CHANGED).split(NOTHING_CHANGED);
  let hint = rest.split("\n", 1)[0]?.trim();
  if (outcomeUnknown) {
    hint = LOOK_FIRST;
    message = `${first.trim()} ${OUTCOME_UNKNOWN}`;
  }
  const busy = status !== 429 && (RETRIED.includes(status) || status === 507);
  let Kind = busy ? UnavailableError : (KINDS[code] ?? KINDS[status] ?? ApiError);
  if (headers.has(REPLICA)) {
    message = `The workload's own server answered ${status}: ${form.message || text}`;
    hint = "Its log says more: holdfast logs.";
    if (!busy || status === 500) Kind = BackendError;
  } else if (code === "drift" && plan) Kind = DriftError;
  else if (!code && !busy && ![401, 403, 429].includes(status)) {
    // Not in our words, so it is no word on whether something is there.
    Kind = ApiError;
    hint = status < 400
      ? "Redirects are not followed, as the credential would go along: set baseUrl to their end."
      : NOT_OURS;
  }
  return new Kind(message, {
    code: code || `http_${status}`,
    status,
    requestId: form.requestId || headers.get("x-request-id") || undefined,
    retryAfter: retryAfter(headers),
    outcomeUnknown,
    hint,
    problems,
    plan,
  });
}

/**
 * Read an error of the control plane, of the data plane, which speaks OpenAI's, or of a backend:
 * FastAPI says `detail`, Ollama a plain `error`.
 *
 * @param {string} text
 * @returns {{code: string, message: string, requestId?: string, problems: Problem[],
 *   plan?: import("./spec.js").Plan}} Without a code it is no error of a Holdfast server.
 */
export function errorForm(text) {
  /** @type {any} */
  let form = {};
  try {
    form = Object(JSON.parse(text));
  } catch {
    // No JSON: of a proxy, or of a backend.
  }
  const { error, message = error?.message ?? form.detail ?? error ?? "", problems } = form;
  const code = error?.code ?? error?.type ?? error;
  return {
    code: typeof code === "string" ? code : "",
    message: typeof message === "string" ? message : JSON.stringify(message),
    requestId: form.request_id,
    problems: Array.isArray(problems) ? problems : [],
    plan: form.plan,
  };
}

/**
 * Let an error say what was changed before it, in the place of "Nothing was changed."
 *
 * @param {unknown} error
 * @param {string} made
 */
export function addChanges(error, made) {
  if (error instanceof HoldfastError) {
    error.message = `${error.message.replace(NOTHING_CHANGED, "")} ${made}`;
  }
  return error;
}

/**
 * Say that a request got no answer, and whether it may have taken effect.
 *
 * @param {string} happened
 * @param {boolean} unknown
 * @param {boolean} [late]
 * @param {unknown} [cause]
 */
export function noAnswer(happened, unknown, late = false, cause = undefined) {
  return new (late ? DeadlineError : UnavailableError)(
    `${happened} ${unknown ? OUTCOME_UNKNOWN : NOTHING_CHANGED}`,
    {
      code: late ? "deadline" : "unavailable",
      hint: unknown ? LOOK_FIRST : "Check that the server runs there, or raise timeoutMs.",
      outcomeUnknown: unknown,
      cause,
    },
  );
}

/**
 * Say that an answer is none of ours, though its status says success.
 *
 * @param {string} path
 * @param {string} what
 * @param {boolean} wrote
 */
export function unreadable(path, what, wrote) {
  return new ApiError(
    `${path} was answered with ${what} that cannot be read. ${wrote ? OUTCOME_UNKNOWN : NOTHING_CHANGED}`,
    { code: "unreadable", outcomeUnknown: wrote, hint: NOT_OURS },
  );
}

/**
 * Return the seconds that `Retry-After` asks for. A date says nothing: clocks differ.
 *
 * @param {Headers} headers
 */
export function retryAfter(headers) {
  const text = headers.get("retry-after") ?? "";
  return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}
