"""A remote control plane as a target, and its data plane, over HTTP.

Start at `client`: `HttpClient` sends requests to one server, over one of the `transports` (blocking
or asynchronous; `sockets` keep the total deadline). `responses` decodes what comes back. On top are
`target` (workloads), `gitops` (applications) and `inference` (one workload's endpoint, whose
`results` they are).
"""
