"""The GitOps controller: follows repositories, and keeps a cluster to what they declare."""
