/** The client for Holdfast. Start at `ManagementClient` and `DataClient`. */

export { DataClient, Endpoint } from "./data.js";
export { ApiClient, path } from "./http.js";
export { ManagementClient } from "./management.js";
export { Backend, OnAbsent, OnDrift } from "./spec.js";
export {
  ApiError,
  AuthError,
  BackendError,
  ConfigurationError,
  ConflictError,
  DeadlineError,
  DriftError,
  HoldfastError,
  NotFoundError,
  PermissionDeniedError,
  RateLimitError,
  StalePlanError,
  UnavailableError,
  ValidationError,
  WaitTimeoutError,
  WorkloadFailedError,
} from "./errors.js";

/** @typedef {import("./data.js").DataOptions} DataOptions */
/** @typedef {import("./data.js").EmbedResult} EmbedResult */
/** @typedef {import("./data.js").RerankResult} RerankResult */
/** @typedef {import("./data.js").TextChunk} TextChunk */
/** @typedef {import("./data.js").TextRequest} TextRequest */
/** @typedef {import("./data.js").TextResult} TextResult */
/** @typedef {import("./errors.js").Problem} Problem */
/** @typedef {import("./http.js").CallOptions} CallOptions */
/** @typedef {import("./http.js").StreamEvent} StreamEvent */
/** @typedef {import("./management.js").EnsureOptions} EnsureOptions */
/** @typedef {import("./management.js").EnsureResult} EnsureResult */
/** @typedef {import("./management.js").ManagementOptions} ManagementOptions */
/** @typedef {import("./management.js").Progress} Progress */
/** @typedef {import("./management.js").WorkloadChange} WorkloadChange */
/** @typedef {import("./spec.js").Change} Change */
/** @typedef {import("./spec.js").EnsureSpec} EnsureSpec */
/** @typedef {import("./spec.js").OnAbsentValue} OnAbsentValue */
/** @typedef {import("./spec.js").OnDriftValue} OnDriftValue */
/** @typedef {import("./spec.js").Plan} Plan */
/** @typedef {import("./spec.js").Step} Step */
/** @typedef {import("./spec.js").Workload} Workload */
/** @typedef {import("./spec.js").WorkloadSpec} WorkloadSpec */
/** @typedef {import("./spec.js").WorkloadStatus} WorkloadStatus */
