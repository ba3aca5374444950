// What the HTTP API answers, as far as the page reads it. `/openapi.json` has the whole.

export interface Writer { manager: string; actor?: string; operation?: string; subresource?: string; at?: string }
export interface Entry { path: string; kind: string; desired?: unknown; live?: unknown; cause?: string; evidence?: string; writer?: Writer }
export interface Device { resource: string; needed: number; free?: number; added?: number; pool?: string }
export interface Cost { kind: string; pods?: number; added?: number; devices?: Device[]; blocked?: boolean; cold_start?: number; several?: boolean; partial?: boolean }
export interface ObjectName { api_version: string; kind: string; namespace?: string; name: string }
export interface Links { page?: string; source?: string; pull_request?: string }
export interface Drift {
  id: string; application: string; project: string; object: ObjectName; kinds: string[]; entries: Entry[];
  uid?: string; where?: string; cost?: Cost; commit: string; remediation: string; route?: string; chosen_by?: string;
  healable?: boolean; fought?: boolean; state: string; note?: string; first_seen: string; last_seen: string;
  plan?: string; requested_by?: string; first_approver?: string; decided_by?: string; comment?: string; until?: string;
  url?: string; resolved_at?: string; resolution?: string; digest?: string; links?: Links; waiting_for_me?: boolean;
}
export interface DriftList { drifts: Drift[]; next?: string; total?: number }
export interface CauseGroup {
  cause: string; writer?: string; count: number; kinds: string[]; applications: string[];
  first_seen: string; last_seen: string; drifts: string[];
}
export interface GroupList { groups: CauseGroup[]; total: number }
export interface Choice { choice: string; allowed: boolean; why_not?: string; effect: string; cost?: Cost; needs_comment?: boolean }
export interface Choices { drift: string; digest: string; plan?: string; choices: Choice[] }
export interface CodifyPreview { possible: boolean; why_not?: string; title?: string; branch?: string; files?: string[]; patch?: string; secret?: boolean }
export interface WorkloadDrift { id: string; project: string; slug: string; kinds: string[]; fields: Entry[]; first_seen: string; resolved_at?: string; resolution?: string; cost?: Cost;
  revert?: { allowed: boolean; why_not?: string; effect: string; plan?: string };
  /** Ours: it is in the list no longer. */ over?: boolean }
export interface Hold {
  id: string; application: string; object?: ObjectName; reason: string; by: string; since: string; until: string; end: string;
  from_annotation?: boolean; changes?: { drift: string; object: string | ObjectName; fields: string[] }[];
}
export interface PlanField { object?: string | ObjectName; action?: string; path: string; kind?: string; desired?: unknown; live?: unknown; cause?: string; evidence?: string; writer?: Writer }
export interface Plan {
  id: string; digest: string; application: string; commit?: string; reasons?: string[]; told?: string; steps?: string[];
  made_at?: string; approved_by?: string; rejected_by?: string; comment?: string; fields?: PlanField[]; cost?: Cost;
  current?: boolean; moved?: string[]; drift?: string; waiting_for_me?: boolean; why_not?: string; needs_comment?: boolean;
  /** Ours: it waits no longer. */ over?: boolean;
}
export interface Source {
  url: string; revision: string; path?: string; commit?: string; subject?: string; author?: string; fetched_at?: string; stale?: string;
}
export interface Application {
  id: string; label: string; project: string; sync: string; health: string; message?: string; revision?: string; source: Source;
  objects?: number; drifted?: number; ahead?: number; held?: number; tolerated?: number; orphans?: number; awaiting?: number;
  suspended?: boolean; automatic?: boolean; prunes?: boolean; looked_at?: string; holds?: Hold[]; plans?: Plan[];
  conditions?: { type: string; status: string; reason?: string; message?: string }[];
  pull_requests?: { url: string; kind: string; object: string | ObjectName; drift: string; opened_at?: string }[];
  next_window?: { opens_at?: string; closes_at?: string };
}
export interface ObjectStatus {
  object: ObjectName; standing: string; health: string; message?: string; owner?: { tool?: string; name?: string } | string;
  drift?: string; held_until?: string; tolerated?: { path: string; rule: string }[];
}
export interface DiffField { path: string; state: string; kind: string; live?: unknown; git?: unknown; cause?: string; writer?: Writer; evidence?: string; rule?: string; where?: string }
export interface ObjectDiff { object: ObjectName; standing: string; health: string; message?: string; where?: string; drift?: string; fields?: DiffField[]; cost?: Cost }
export interface ApplicationDiff { application: string; commit: string; looked_at: string; objects: ObjectDiff[]; stale?: string }
export interface SyncStep { object: ObjectName; action: string; reason: string; fields?: Entry[]; cost?: Cost }
export interface SyncPlan { id: string; digest: string; application: string; commit: string; prune: boolean; steps: SyncStep[]; stale?: string }
export interface Rule {
  name: string; application: string; origin: string; path: string; object: string; manager?: string; owner?: string; reason?: string;
  expires?: string; hides?: { object: string | ObjectName; path: string }[]; hides_count?: number;
}
export interface JournalLine { seq: number; at: string; application: string; subject?: string; action: string; actor: string; summary: string; detail?: Record<string, unknown> }
export interface Journal { entries: JournalLine[]; next?: number }
export interface Bucket { key: string; count: number; seconds: number }
export interface Statistics {
  since: string; until: string; drifts: number; open: number; drift_seconds: number;
  time_to_resolve?: { p50?: number; p90?: number; count: number };
  by_cause?: Bucket[]; by_writer?: Bucket[]; by_kind?: Bucket[]; by_resolution?: Bucket[]; by_application?: Bucket[];
  decisions?: { actor: string; approved?: number; rejected?: number; codified?: number; reverted?: number; snoozed?: number }[];
}
export interface WorkloadStatus {
  phase: string; message?: string; ready?: number; wanted?: number; canary_weight?: number; endpoint?: string; suspended?: string;
  failed?: { name: string; generation: number; reason: string }[]; outdated?: { name: string; generation: number }[];
  runtime?: { pod: string; field: string; declared?: string; served?: string }[]; runtime_unknown?: string;
}
export interface Workload {
  id: string; slug: string; name: string; task_type: string; backend: string; model_name: string; created_at: string; updated_at: string;
  description?: string; generation?: number; version?: string; spec?: Record<string, unknown>; writers?: Record<string, Writer>; status?: WorkloadStatus;
}
export interface HistoryRow { seq: number; at: string; slug: string; action: string; writer: Writer; generation: number; summary: string }
export interface Progress { phase: string; message: string; elapsed_ms: number; step?: string }
export interface Session { id: string; created_at: string; last_seen?: string; expires_at?: string; current?: boolean; agent?: string; peer?: string }
export interface Me {
  name: string; kind: string; issuer?: string; subject?: string; email?: string;
  projects: { project: string; scopes: string[] }[];
  token?: { id: string; name: string; expires_at?: string }; session?: { id: string; created_at: string; expires_at?: string };
  server: { version: string; target?: string; features: string[]; base_url?: string };
}
export interface LoginOffer { openid: { id: string; name: string; url: string }[]; token: boolean; version: string }
export interface ServerEvent { id?: string; event: string; data?: any }
